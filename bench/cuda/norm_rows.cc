// SPDX-License-Identifier: Apache-2.0
// What stands between the products of a layer of Gemma 3 1B: AddNorm, and RopeCacheInsert of 4 query heads and one KV head
// of 256. All is float, caches are bfloat16, and weights are constant, as in a model.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "rows.h"

#include "pagefuse/ops/kernels/cuda/add_norm.h"
#include "pagefuse/ops/kernels/cuda/rope_cache_insert.h"

namespace pagefuse::cuda_bench {
namespace {

constexpr float kEpsilon = 1e-6f;

// Memory of the calls of a row.
class Memories {
 public:
  explicit Memories(const Gpu& gpu) : gpu_(gpu) {}

  uint8_t* Add(int64_t bytes, Fill fill = Fill::kFloat) {
    all_.emplace_back(gpu_, static_cast<size_t>(bytes), fill, static_cast<uint32_t>(all_.size()));
    return all_.back().as();
  }
  uint8_t* Add(const std::vector<int64_t>& values) {
    all_.push_back(Upload(gpu_, values));
    return all_.back().as();
  }

 private:
  const Gpu& gpu_;
  std::vector<Memory> all_;
};

Measured AddNormOf(const Gpu& gpu, int64_t rows) {
  constexpr int64_t kSize = 1152, kRowBytes = kSize * 4;
  const int64_t bytes = rows * kRowBytes, moved = 4 * bytes + 2 * kRowBytes;
  Memories memories(gpu);
  const int sets = SetsFor(gpu, static_cast<size_t>(moved));
  std::vector<cuda::AddNormParams> calls(static_cast<size_t>(sets));
  for (cuda::AddNormParams& p : calls) {
    p.rows = rows, p.n = kSize, p.x_epsilon = p.epsilon = kEpsilon;
    p.x = memories.Add(bytes), p.residual = memories.Add(bytes);
    p.x_weight = memories.Add(kRowBytes), p.weight = memories.Add(kRowBytes);
    p.sum = memories.Add(bytes), p.y = memories.Add(bytes);
    p.constant_weights = true;
  }
  const auto launch = [&](int set) {
    Check(cuda::LaunchAddNorm(calls[static_cast<size_t>(set)], gpu.stream));
  };
  return {TimeLaunches(gpu, sets, launch), static_cast<double>(moved)};
}

constexpr int kHeads = 4, kKvHeads = 1, kHeadSize = 256;
constexpr int64_t kBlock = 16, kPositions = 4096;

// Keys or values, and where they go.
cuda::InsertSide SideOf(Memories& memories, int64_t tokens) {
  constexpr int64_t kHead = kHeadSize * 2, kRow = kKvHeads * kHead;
  cuda::InsertSide side;
  side.element = DataType::kBfloat16;
  side.source = memories.Add(tokens * kKvHeads * kHeadSize * 4);
  side.heads = kKvHeads, side.head_size = kHeadSize;
  side.rows.num_blocks = tokens, side.rows.block_size = kBlock;
  side.rows.data = memories.Add(tokens * kBlock * kRow, Fill::kZeros);
  side.rows.data_strides = {.block = kBlock * kRow, .row = kRow, .head = kHead};
  return side;
}

// Each token goes to a block of its own.
Measured RopeInsert(const Gpu& gpu, int64_t tokens) {
  constexpr int64_t kPairs = kHeadSize / 2;
  const int64_t query_bytes = tokens * kHeads * kHeadSize * 4;
  const int64_t moved = 2 * query_bytes + 2 * tokens * kKvHeads * kHeadSize * (4 + 2);
  std::vector<int64_t> slots, positions;
  for (int64_t t = 0; t < tokens; ++t) {
    slots.push_back(t * kBlock), positions.push_back(37 * t % kPositions);
  }
  Memories memories(gpu);
  const uint8_t* cos = memories.Add(kPositions * kPairs * 4);
  const uint8_t* sin = memories.Add(kPositions * kPairs * 4);
  const int sets = SetsFor(gpu, static_cast<size_t>(moved));
  std::vector<cuda::RopeCacheInsert> calls(static_cast<size_t>(sets));
  for (cuda::RopeCacheInsert& p : calls) {
    p.tokens = tokens, p.heads = kHeads, p.size = kHeadSize, p.epsilon = kEpsilon;
    p.query = memories.Add(query_bytes), p.query_out = memories.Add(query_bytes);
    p.positions = memories.Add(positions);
    p.table_rows = kPositions, p.cos = cos, p.sin = sin, p.pairs = kPairs;
    p.q_norm = memories.Add(kHeadSize * 4), p.k_norm = memories.Add(kHeadSize * 4);
    p.constant_weights = true;
    p.key = SideOf(memories, tokens), p.value = SideOf(memories, tokens);
    p.slots = {.slots = memories.Add(slots), .tokens = tokens, .unique = tokens == 1};
  }
  const auto launch = [&](int set) {
    Check(cuda::LaunchRopeCacheInsert(calls[static_cast<size_t>(set)], gpu.stream));
  };
  return {TimeLaunches(gpu, sets, launch), static_cast<double>(moved)};
}

}  // namespace

void AddNormRows(std::vector<Row>& rows) {
  const auto add = [&](const std::string& name, double us, int64_t count, auto measure) {
    rows.push_back({name, {.bound = Bound::kCopy, .us = us}, [=](const Gpu& gpu) {
                      return measure(gpu, count);
                    }});
  };
  add("AddNorm of a row of 1152", 2, 1, AddNormOf);
  add("AddNorm of 64 rows of 1152", 3, 64, AddNormOf);
  add("RopeCacheInsert of a token Hq4 Hk1 D256 bf16", 2.5, 1, RopeInsert);
  add("RopeCacheInsert of 64 tokens Hq4 Hk1 D256 bf16", 3.5, 64, RopeInsert);
}

}  // namespace pagefuse::cuda_bench
