// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "op_test.h"

namespace pagefuse::pagefuse_ops {
namespace {

// What differs between the cases.
struct Rope {
  std::string name;
  DataType type = DataType::kFloat;
  int64_t size = 32;
  int64_t rotary = 0;
  int64_t offset = 0;
  int64_t interleaved = 0;
  bool norm = false;
  bool positions = true;
  int64_t value_size = 8;
  DataType cache_type = DataType::kUndefined;  // none: that of the rows
};

OpCase RopeCase(const Rope& rope) {
  const int64_t pairs = (rope.rotary == 0 ? rope.size : rope.rotary) / 2;
  const int64_t rows = rope.positions ? 9 : 5;
  const auto normal = [&](std::vector<int64_t> dims, uint64_t seed) {
    return Random(rope.type, std::move(dims), Normal{}, seed);
  };
  const auto cache = [&](int64_t size, uint64_t seed) {
    const bool is_same = rope.cache_type == DataType::kUndefined;
    return Random(is_same ? rope.type : rope.cache_type, {2, 4, 2, size}, Normal{}, seed);
  };
  const auto table = [&](uint64_t seed) {
    return Random(DataType::kFloat, {rows, pairs}, Uniform{-1, 1}, seed);
  };
  return {.name = rope.name,
          .inputs = {normal({5, 4, rope.size}, 1), normal({5, 2, rope.size}, 2),
                     normal({5, 2, rope.value_size}, 3), cache(rope.size, 4),
                     cache(rope.value_size, 5), Ints({5}, {7, 2, -1, 0, 3}),
                     rope.positions ? Ints({5}, {0, 8, 3, 3, 5}) : Tensor(), table(6), table(7),
                     rope.norm ? normal({rope.size}, 8) : Tensor(),
                     rope.norm ? normal({rope.size}, 9) : Tensor()},
          .attributes = {{"interleaved", rope.interleaved},
                         {"rotary_embedding_dim", rope.rotary},
                         {"rotary_offset", rope.offset}},
          .num_outputs = 3};
}

}  // namespace

OpCases RopeCacheInsertCases() {
  OpCase odd = RopeCase({.name = "odd_rotary_dim", .rotary = 8});
  odd.attributes[1].second = int64_t{7};
  OpCase far = RopeCase({.name = "position_past_the_table"});
  far.inputs[6] = Ints({5}, {0, 9, 0, 0, 0});
  OpCase one_norm = RopeCase({.name = "one_norm", .norm = true});
  one_norm.inputs[10] = Tensor();
  return OpCases("pagefuse.RopeCacheInsert")
      .Add(RopeCase({.name = "half_split"}))
      .Add(RopeCase({.name = "interleaved", .interleaved = 1}))
      .Add(RopeCase({.name = "norm", .norm = true}))
      .Add(RopeCase({.name = "rows_of_tables", .positions = false}))
      .Add(RopeCase({.name = "first_channels", .size = 40, .rotary = 12}))
      .Add(RopeCase(
          {.name = "last_channels", .size = 40, .rotary = 12, .offset = 28, .interleaved = 1}))
      .Add(RopeCase({.name = "half", .type = DataType::kFloat16, .norm = true}))
      .Add(RopeCase({.name = "bfloat16", .type = DataType::kBfloat16, .size = 72}))
      // Keys and values of one size, and caches of another type.
      .Add(RopeCase({.name = "equal_sizes", .size = 80, .norm = true, .value_size = 80}))
      .Add(RopeCase({.name = "equal_sizes_bfloat16",
                     .type = DataType::kBfloat16,
                     .size = 128,
                     .norm = true,
                     .value_size = 128}))
      .Add(RopeCase({.name = "equal_sizes_half_to_bfloat16",
                     .type = DataType::kFloat16,
                     .size = 64,
                     .rotary = 32,
                     .offset = 32,
                     .positions = false,
                     .value_size = 64,
                     .cache_type = DataType::kBfloat16}))
      .Add(RopeCase({.name = "bfloat16_to_float",
                     .type = DataType::kBfloat16,
                     .size = 256,
                     .norm = true,
                     .value_size = 256,
                     .cache_type = DataType::kFloat}))
      .Rejects(odd, "input 0 \"query\": expected [T, Hq, D], R % 2 = 0 with R = 7, got")
      .Rejects(far, "input 6 \"positions\": expected positions in [0, 9), got 9 at 1")
      .Rejects(one_norm, "input 10 \"k_norm_weight\": is missing with \"q_norm_weight\"");
}

}  // namespace pagefuse::pagefuse_ops
