#include "pagefuse/ops/pagefuse/mqa_engine.h"

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

class MqaRun {
 public:
  MqaRun(const MqaLogitsProblem& problem, const MqaEngine& engine, Scratch* scratch)
      : problem_(problem), engine_(engine), scratch_(scratch) {
    max_piece_ = kPieceBytes / std::max<int64_t>(engine.KeyBytes(), 1);
    max_piece_ = std::clamp<int64_t>(max_piece_ / kKeyMultiple * kKeyMultiple, kKeyMultiple, 512);
    const int64_t scale_bytes = max_piece_ * static_cast<int64_t>(sizeof(float));
    key_bytes_ = (max_piece_ * engine.KeyBytes() + kCacheLine - 1) / kCacheLine * kCacheLine;
    thread_bytes_ = key_bytes_ + scale_bytes;
  }

  void Run() {
    const int64_t batch = std::clamp<int64_t>(kBatchBytes / engine_.QueryBytes(), 1,
                                              std::max<int64_t>(problem_.rows, 1));
    auto* packed = static_cast<std::byte*>(scratch_->Get(batch * engine_.QueryBytes(), 0));
    auto* pieces = static_cast<std::byte*>(scratch_->Get(omp_get_max_threads() * thread_bytes_, 1));
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
      std::byte* mine = pieces + omp_get_thread_num() * thread_bytes_;
      const DecodedKeys decoded = {mine, reinterpret_cast<float*>(mine + key_bytes_)};
      engine_.BeginThread();
#pragma omp for schedule(dynamic, 1)
      for (int64_t i = 0; i < count; ++i) RunItem(items[i], decoded);
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

  void RunItem(const Item& item, const DecodedKeys& decoded) const {
    const int64_t piece = PieceFor(item);
    for (int64_t begin = item.range.begin; begin < item.range.end; begin += piece) {
      const KeyRange keys = {begin, std::min(begin + piece, item.range.end)};
      const KeyRange next = {keys.end, std::min(keys.end + piece, item.range.end)};
      ScorePiece(item, keys, next, decoded);
    }
  }

  void ScorePiece(const Item& item, const KeyRange& keys, const KeyRange& next,
                  const DecodedKeys& decoded) const {
    bool is_decoded = false;
    for (int64_t row = item.first_row; row < item.last_row; ++row) {
      const KeyRange& seen = problem_.ranges[row];
      const KeyRange range = {std::max(seen.begin, keys.begin) - keys.begin,
                              std::min(seen.end, keys.end) - keys.begin};
      if (range.begin >= range.end) continue;
      if (!is_decoded) {
        Decode(problem_.SequenceOf(row), keys, decoded);
        Prefetch(problem_.SequenceOf(row), next);
        is_decoded = true;
      }
      engine_.Score(Packed(row), decoded, range,
                    problem_.logits + row * problem_.width + keys.begin);
    }
  }

  // Calls body(address, count) for the keys of `range` that lie in one block.
  template <typename Body>
  void ForEachBlock(int64_t sequence, const KeyRange& range, const Body& body) const {
    const int64_t block_size = problem_.keys.block_size;
    for (int64_t position = range.begin; position < range.end;) {
      const int64_t left = block_size - position % block_size;
      const int64_t count = std::min(left, range.end - position);
      body(problem_.Key(sequence, position), count);
      position += count;
    }
  }

  void Decode(int64_t sequence, const KeyRange& range, const DecodedKeys& decoded) const {
    const int64_t scale_stride = problem_.keys.scale_strides.row;
    int64_t first = 0;
    ForEachBlock(sequence, range, [&](const RowAddress& keys, int64_t count) {
      engine_.DecodeRun({keys.data, count, problem_.keys.data_strides.row, first}, decoded);
      for (int64_t i = 0; i < count; ++i) {
        float scale;
        std::memcpy(&scale, keys.scale + i * scale_stride, sizeof(scale));
        decoded.scales[first + i] = std::fabs(scale);
        if (std::signbit(scale)) engine_.NegateKey(first + i, decoded);
      }
      first += count;
    });
  }

  // Asks for the next keys while these are scored.
  void Prefetch(int64_t sequence, const KeyRange& range) const {
    if (range.begin >= range.end) return;
    const CacheRows::Strides& data = problem_.keys.data_strides;
    const CacheRows::Strides& scales = problem_.keys.scale_strides;
    ForEachBlock(sequence, range, [&](const RowAddress& keys, int64_t count) {
      for (int64_t i = 0; i < count * data.row; i += kCacheLine) {
        __builtin_prefetch(keys.data + i, 0, 2);
      }
      for (int64_t i = 0; i < count * scales.row; i += kCacheLine) {
        __builtin_prefetch(keys.scale + i, 0, 2);
      }
    });
  }

  const MqaLogitsProblem& problem_;
  const MqaEngine& engine_;
  Scratch* scratch_;
  int64_t max_piece_ = 0;
  int64_t key_bytes_ = 0;
  int64_t thread_bytes_ = 0;
  int64_t first_row_ = 0;
  std::byte* packed_ = nullptr;
};

}  // namespace

void RunMqaEngine(const MqaLogitsProblem& problem, const MqaEngine& engine, Scratch* scratch) {
  if (problem.rows > 0) MqaRun(problem, engine, scratch).Run();
}

}  // namespace pagefuse::pagefuse_ops
