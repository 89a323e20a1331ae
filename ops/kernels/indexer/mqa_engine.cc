// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/indexer/mqa_engine.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

#include "pagefuse/base/parallel.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr int64_t kKeyMultiple = 16;
// Packed queries at a time: a bound of the memory, and enough to share among many threads.
constexpr int64_t kBatchBytes = int64_t{16} << 20;
// Rows that use one decoded piece: decoding costs about as much as scoring one row.
constexpr int64_t kItemRows = 64;
// A piece for many rows stays in the second-level cache with their queries; two pieces for few rows
// and a query of 64 heads in the first-level cache, so that memory is read all the time.
constexpr int64_t kPieceBytes = int64_t{128} << 10;
constexpr int64_t kFewRows = 8;
constexpr int64_t kFewRowsPiece = 32;
// Keys of an item for few rows: its first ones come from memory unasked.
constexpr int64_t kMinItemKeys = 1024;
constexpr int64_t kMaxItemKeys = 8192;
constexpr int64_t kItemsAThread = 8;
// Keys are asked for this long before they are decoded.
constexpr int64_t kPrefetchBytes = int64_t{16} << 10;
constexpr int64_t kCacheLine = 64;

// Rows [first_row, last_row) of one sequence by the keys of `range`.
struct Item {
  int64_t first_row;
  int64_t last_row;
  KeyRange range;
};

// Walks over the keys of one sequence in the order of their positions.
class KeyCursor {
 public:
  KeyCursor(const MqaLogitsProblem& problem, int64_t sequence, int64_t position)
      : keys_(&problem.keys),
        table_(problem.block_table + sequence * problem.table_columns),
        position_(position),
        column_(position / keys_->block_size),
        offset_(position % keys_->block_size) {}

  int64_t position() const { return position_; }

  // Calls body(address, count) for the keys up to position `end` that are left, a block at a time.
  template <typename Body>
  void Walk(int64_t end, const Body& body) {
    while (position_ < end) {
      const int64_t count = std::min(keys_->block_size - offset_, end - position_);
      body(keys_->At(table_[column_], offset_, 0), count);
      position_ += count;
      offset_ += count;
      if (offset_ < keys_->block_size) continue;
      offset_ = 0;
      ++column_;
    }
  }

 private:
  const CacheRows* keys_;
  const int32_t* table_;
  int64_t position_;
  int64_t column_;
  int64_t offset_;
};

// Decodes the pieces of one item, and asks for the keys that come next.
class PieceDecoding : public KeyDecoding {
 public:
  PieceDecoding(const MqaLogitsProblem& problem, const MqaEngine& engine, const Item& item)
      : problem_(problem),
        engine_(engine),
        sequence_(problem.sequences[item.first_row]),
        item_end_(item.range.end),
        keys_(problem, sequence_, item.range.begin),
        asked_(keys_) {
    const int64_t key_bytes = problem.keys.data_strides.row + problem.keys.scale_strides.row;
    lead_ = std::max(kPrefetchBytes / std::max<int64_t>(key_bytes, 1), kKeyMultiple);
  }

  void Start(const KeyRange& range, const DecodedKeys& decoded) {
    range_ = range;
    decoded_ = decoded;
    if (range.begin < range.end && range.begin != keys_.position()) {
      keys_ = KeyCursor(problem_, sequence_, range.begin);
      asked_ = keys_;
    }
  }

  void Step() override {
    const int64_t end = std::min(keys_.position() + kKeyMultiple, range_.end);
    if (keys_.position() >= end) return;
    asked_.Walk(std::min(end + lead_, item_end_),
                [&](const RowAddress& keys, int64_t count) { Ask(keys, count); });
    int64_t first = keys_.position() - range_.begin;
    keys_.Walk(end, [&](const RowAddress& keys, int64_t count) {
      Decode(keys, count, first);
      first += count;
    });
  }

  void Finish() {
    while (keys_.position() < range_.end) Step();
  }

 private:
  void Decode(const RowAddress& keys, int64_t count, int64_t first) const {
    const int64_t stride = problem_.keys.scale_strides.row;
    engine_.DecodeRun({keys.data, count, problem_.keys.data_strides.row, first, keys.scale, stride},
                      decoded_);
    float* scales = decoded_.scales + first;
    if (!keys.scale || problem_.key_groups) {
      std::fill_n(scales, count, 1.0f);
      return;
    }
    if (stride == sizeof(float)) {
      std::memcpy(scales, keys.scale, static_cast<size_t>(count) * sizeof(float));
    } else {
      for (int64_t i = 0; i < count; ++i) {
        std::memcpy(scales + i, keys.scale + i * stride, sizeof(float));
      }
    }
    uint32_t signs = 0;
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t bits = std::bit_cast<uint32_t>(scales[i]);
      signs |= bits;
      scales[i] = std::bit_cast<float>(bits & 0x7FFFFFFF);
    }
    if (signs >> 31 == 0) return;
    for (int64_t i = 0; i < count; ++i) {
      float scale;
      std::memcpy(&scale, keys.scale + i * stride, sizeof(scale));
      if (std::signbit(scale)) engine_.NegateKey(first + i, decoded_);
    }
  }

  void Ask(const RowAddress& keys, int64_t count) const {
    for (int64_t i = 0; i < count * problem_.keys.data_strides.row; i += kCacheLine) {
      __builtin_prefetch(keys.data + i, 0, 2);
    }
    for (int64_t i = 0; i < count * problem_.keys.scale_strides.row; i += kCacheLine) {
      __builtin_prefetch(keys.scale + i, 0, 2);
    }
  }

  const MqaLogitsProblem& problem_;
  const MqaEngine& engine_;
  int64_t sequence_;
  int64_t item_end_;
  KeyCursor keys_;   // the next keys to decode
  KeyCursor asked_;  // the next keys to ask for
  int64_t lead_;     // how far the latter is ahead
  KeyRange range_;
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
    auto* pieces = static_cast<std::byte*>(scratch_->Get(MaxWorkers() * 2 * piece_bytes_, 1));
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
    const int64_t row_bytes = 4 * problem_.width + 4 * engine_.QueryBytes();
    ParallelFor(last_row - first_row_, row_bytes, [&](int64_t begin, int64_t end) {
      for (int64_t row = first_row_ + begin; row < first_row_ + end; ++row) {
        FillOutside(problem_, row);
        if (problem_.ranges[row].begin < problem_.ranges[row].end) {
          engine_.PackQuery(row, packed_ + (row - first_row_) * engine_.QueryBytes());
        }
      }
    });
    ParallelTasks(static_cast<int64_t>(items.size()), [&](int64_t i, int worker) {
      engine_.BeginScores();
      RunItem(items[i], pieces + worker * 2 * piece_bytes_);
      engine_.EndScores();
    });
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

  // Rows of one sequence that are scored together, by all keys that one of them sees.
  std::vector<Item> RowGroups(int64_t last_row) const {
    std::vector<Item> groups;
    for (int64_t row = first_row_; row < last_row;) {
      const int64_t most = std::min(row + kItemRows, last_row);
      int64_t end = row + 1;
      while (end < most && problem_.sequences[end] == problem_.sequences[row]) ++end;
      groups.push_back({row, end, Hull(row, end)});
      row = end;
    }
    return groups;
  }

  std::vector<Item> MakeItems(int64_t last_row) const {
    const std::vector<Item> groups = RowGroups(last_row);
    int64_t keys = 0;
    for (const Item& group : groups) {
      keys += std::max<int64_t>(group.range.end - group.range.begin, 0);
    }
    const int64_t few_rows_step =
        std::clamp(keys / (kItemsAThread * MaxWorkers()), kMinItemKeys, kMaxItemKeys);
    std::vector<Item> items;
    for (const Item& group : groups) {
      const KeyRange& hull = group.range;
      const int64_t step = group.last_row - group.first_row < kFewRows ? few_rows_step : max_piece_;
      for (int64_t key = hull.begin; key < hull.end; key += step) {
        items.push_back({group.first_row, group.last_row, {key, std::min(key + step, hull.end)}});
      }
    }
    return items;
  }

  DecodedKeys Piece(std::byte* memory) const {
    return {memory, reinterpret_cast<float*>(memory + key_bytes_)};
  }

  // Pieces alternate between two buffers: one is scored while the next one is decoded.
  void RunItem(const Item& item, std::byte* memory) const {
    const std::vector<KeyRange> pieces = NeededPieces(item);
    DecodedKeys decoded[2] = {Piece(memory), Piece(memory + piece_bytes_)};
    PieceDecoding decoding(problem_, engine_, item);
    if (!pieces.empty()) decoding.Start(pieces[0], decoded[0]);
    for (size_t i = 0; i < pieces.size(); ++i) {
      decoding.Finish();
      const bool last = i + 1 == pieces.size();
      decoding.Start(last ? KeyRange() : pieces[i + 1], decoded[(i + 1) % 2]);
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
