#include "pagefuse/ops/pagefuse/indexer/mqa_engine.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

#include <omp.h>

namespace pagefuse::pagefuse_ops {
namespace {

constexpr int64_t kKeyMultiple = 16;
// Packed queries at a time: a bound of the memory, and enough to share among many threads.
constexpr int64_t kBatchBytes = int64_t{16} << 20;
// Rows that use one decoded piece: decoding costs about as much as scoring one row.
constexpr int64_t kItemRows = 64;
// A piece for many rows stays in the second-level cache with their queries; one for few rows in the
// first-level cache, so that memory is read all the time.
constexpr int64_t kPieceBytes = int64_t{128} << 10;
constexpr int64_t kFewRows = 8;
constexpr int64_t kFewRowsPiece = 64;
constexpr int64_t kFewRowsItemKeys = 1024;
constexpr int64_t kCacheLine = 64;

// Rows [first_row, last_row) of one sequence by the keys of `range`.
struct Item {
  int64_t first_row;
  int64_t last_row;
  KeyRange range;
};

// Decodes the keys of `range` of one sequence.
class PieceDecoding : public KeyDecoding {
 public:
  PieceDecoding(const MqaLogitsProblem& problem, const MqaEngine& engine)
      : problem_(problem), engine_(engine) {}

  void Start(int64_t sequence, const KeyRange& range, const DecodedKeys& decoded) {
    sequence_ = sequence;
    range_ = range;
    position_ = range.begin;
    decoded_ = decoded;
  }

  void Step() override {
    const KeyRange keys = {position_, std::min(position_ + kKeyMultiple, range_.end)};
    if (keys.begin >= keys.end) return;
    ForEachBlock(problem_, sequence_, keys, [&](const RowAddress& first_key, int64_t count) {
      DecodeBlock(first_key, count);
      position_ += count;
    });
  }

  void Finish() {
    while (position_ < range_.end) Step();
  }

  // Calls body(address, count) for the keys of `range` that lie in one block.
  template <typename Body>
  static void ForEachBlock(const MqaLogitsProblem& problem, int64_t sequence, const KeyRange& range,
                           const Body& body) {
    const int64_t block_size = problem.keys.block_size;
    for (int64_t position = range.begin; position < range.end;) {
      const int64_t left = block_size - position % block_size;
      const int64_t count = std::min(left, range.end - position);
      body(problem.Key(sequence, position), count);
      position += count;
    }
  }

 private:
  void DecodeBlock(const RowAddress& keys, int64_t count) const {
    const int64_t first = position_ - range_.begin;
    engine_.DecodeRun({keys.data, count, problem_.keys.data_strides.row, first}, decoded_);
    for (int64_t i = 0; i < count; ++i) {
      float scale;
      std::memcpy(&scale, keys.scale + i * problem_.keys.scale_strides.row, sizeof(scale));
      decoded_.scales[first + i] = std::fabs(scale);
      if (std::signbit(scale)) engine_.NegateKey(first + i, decoded_);
    }
  }

  const MqaLogitsProblem& problem_;
  const MqaEngine& engine_;
  int64_t sequence_ = 0;
  KeyRange range_;
  int64_t position_ = 0;
  DecodedKeys decoded_;
};

class MqaRun {
 public:
  MqaRun(const MqaLogitsProblem& problem, const MqaEngine& engine, Scratch* scratch)
      : problem_(problem), engine_(engine), scratch_(scratch) {
    max_piece_ = kPieceBytes / std::max<int64_t>(engine.KeyBytes(), 1);
    max_piece_ = std::clamp<int64_t>(max_piece_ / kKeyMultiple * kKeyMultiple, kKeyMultiple, 512);
    const int64_t scale_bytes = max_piece_ * static_cast<int64_t>(sizeof(float));
    key_bytes_ = (max_piece_ * engine.KeyBytes() + kCacheLine - 1) / kCacheLine * kCacheLine;
    piece_bytes_ = key_bytes_ + scale_bytes;
  }

  void Run() {
    const int64_t batch = std::clamp<int64_t>(kBatchBytes / engine_.QueryBytes(), 1,
                                              std::max<int64_t>(problem_.rows, 1));
    auto* packed = static_cast<std::byte*>(scratch_->Get(batch * engine_.QueryBytes(), 0));
    auto* pieces =
        static_cast<std::byte*>(scratch_->Get(omp_get_max_threads() * 2 * piece_bytes_, 1));
    for (int64_t first = 0; first < problem_.rows; first += batch) {
      first_row_ = first;
      packed_ = packed;
      RunBatch(std::min(first + batch, problem_.rows), pieces);
    }
  }

 private:
  const std::byte* Packed(int64_t row) const {
    return packed_ + (row - first_row_) * engine_.QueryBytes();
  }

  void RunBatch(int64_t last_row, std::byte* pieces) const {
    const std::vector<Item> items = MakeItems(last_row);
    const int64_t count = static_cast<int64_t>(items.size());
#pragma omp parallel if (count > 1 || last_row - first_row_ > 1)
    {
#pragma omp for schedule(static)
      for (int64_t row = first_row_; row < last_row; ++row) {
        FillOutside(problem_, row);
        if (problem_.ranges[row].begin < problem_.ranges[row].end) {
          engine_.PackQuery(row, packed_ + (row - first_row_) * engine_.QueryBytes());
        }
      }
      std::byte* mine = pieces + omp_get_thread_num() * 2 * piece_bytes_;
      engine_.BeginThread();
#pragma omp for schedule(dynamic, 1)
      for (int64_t i = 0; i < count; ++i) RunItem(items[i], mine);
      engine_.EndThread();
    }
  }

  // The keys that some row of [first, last) sees, from the first to the last one.
  KeyRange Hull(int64_t first, int64_t last) const {
    KeyRange hull = {problem_.width, 0};
    for (int64_t row = first; row < last; ++row) {
      const KeyRange& range = problem_.ranges[row];
      if (range.begin >= range.end) continue;
      hull.begin = std::min(hull.begin, range.begin);
      hull.end = std::max(hull.end, range.end);
    }
    return hull;
  }

  int64_t PieceFor(const Item& item) const {
    return item.last_row - item.first_row < kFewRows ? std::min(max_piece_, kFewRowsPiece)
                                                     : max_piece_;
  }

  std::vector<Item> MakeItems(int64_t last_row) const {
    std::vector<Item> items;
    for (int64_t row = first_row_; row < last_row;) {
      const int64_t sequence_end = (problem_.SequenceOf(row) + 1) * problem_.rows_a_sequence;
      const int64_t end = std::min({row + kItemRows, sequence_end, last_row});
      const KeyRange hull = Hull(row, end);
      const int64_t step = end - row < kFewRows ? kFewRowsItemKeys : max_piece_;
      for (int64_t key = hull.begin; key < hull.end; key += step) {
        items.push_back({row, end, {key, std::min(key + step, hull.end)}});
      }
      row = end;
    }
    return items;
  }

  DecodedKeys Piece(std::byte* memory) const {
    return {memory, reinterpret_cast<float*>(memory + key_bytes_)};
  }

  // Pieces alternate between two buffers: one is scored while the next one is decoded.
  void RunItem(const Item& item, std::byte* memory) const {
    const int64_t sequence = problem_.SequenceOf(item.first_row);
    const std::vector<KeyRange> pieces = NeededPieces(item);
    DecodedKeys decoded[2] = {Piece(memory), Piece(memory + piece_bytes_)};
    PieceDecoding decoding(problem_, engine_);
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (i == 0) {
        decoding.Start(sequence, pieces[0], decoded[0]);
        if (pieces.size() > 1) Prefetch(sequence, pieces[1]);
      }
      decoding.Finish();
      const bool last = i + 1 == pieces.size();
      decoding.Start(sequence, last ? KeyRange() : pieces[i + 1], decoded[(i + 1) % 2]);
      if (i + 2 < pieces.size()) Prefetch(sequence, pieces[i + 2]);
      ScorePiece(item, pieces[i], decoded[i % 2], decoding);
    }
  }

  // The pieces of an item that some row sees.
  std::vector<KeyRange> NeededPieces(const Item& item) const {
    std::vector<KeyRange> pieces;
    const int64_t size = PieceFor(item);
    for (int64_t begin = item.range.begin; begin < item.range.end; begin += size) {
      const KeyRange piece = {begin, std::min(begin + size, item.range.end)};
      const auto sees = [&](const KeyRange& range) {
        return std::max(range.begin, piece.begin) < std::min(range.end, piece.end);
      };
      if (std::any_of(problem_.ranges.begin() + item.first_row,
                      problem_.ranges.begin() + item.last_row, sees)) {
        pieces.push_back(piece);
      }
    }
    return pieces;
  }

  void ScorePiece(const Item& item, const KeyRange& keys, const DecodedKeys& decoded,
                  KeyDecoding& next) const {
    for (int64_t row = item.first_row; row < item.last_row; ++row) {
      const KeyRange& seen = problem_.ranges[row];
      const KeyRange range = {std::max(seen.begin, keys.begin) - keys.begin,
                              std::min(seen.end, keys.end) - keys.begin};
      if (range.begin >= range.end) continue;
      engine_.Score(Packed(row), decoded, range, next,
                    problem_.logits + row * problem_.width + keys.begin);
    }
  }

  // Asks for keys that are decoded soon.
  void Prefetch(int64_t sequence, const KeyRange& range) const {
    const CacheRows::Strides& data = problem_.keys.data_strides;
    const CacheRows::Strides& scales = problem_.keys.scale_strides;
    const auto ask = [&](const RowAddress& keys, int64_t count) {
      for (int64_t i = 0; i < count * data.row; i += kCacheLine) {
        __builtin_prefetch(keys.data + i, 0, 2);
      }
      for (int64_t i = 0; i < count * scales.row; i += kCacheLine) {
        __builtin_prefetch(keys.scale + i, 0, 2);
      }
    };
    PieceDecoding::ForEachBlock(problem_, sequence, range, ask);
  }

  const MqaLogitsProblem& problem_;
  const MqaEngine& engine_;
  Scratch* scratch_;
  int64_t max_piece_ = 0;
  int64_t key_bytes_ = 0;
  int64_t piece_bytes_ = 0;
  int64_t first_row_ = 0;
  std::byte* packed_ = nullptr;
};

}  // namespace

void RunMqaEngine(const MqaLogitsProblem& problem, const MqaEngine& engine, Scratch* scratch) {
  if (problem.rows > 0) MqaRun(problem, engine, scratch).Run();
}

}  // namespace pagefuse::pagefuse_ops
