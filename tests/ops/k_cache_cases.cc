// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "op_test.h"
#include "special_rows.h"

#include "pagefuse/ops/kernels/formats/grouped_row.h"

namespace pagefuse::pagefuse_ops {
namespace {

Tensor CacheBytes(int64_t blocks, int64_t bytes) {
  return Random(DataType::kUint8, {blocks, bytes}, Uniform{0, 255}, 7);
}

Tensor Rows(int64_t tokens, double deviation, uint64_t seed) {
  return Random(DataType::kBfloat16, {tokens, 512}, Normal{0, deviation}, seed);
}

struct Insert {
  std::string name;
  int64_t tokens = 5;
  std::vector<int64_t> slots = {7, -1, 0, 3, 4};
  int64_t block_size = 4;
  int64_t block_bytes = 2880;
  double deviation = 3;
};

OpCase InsertCase(const Insert& insert) {
  const int64_t count = static_cast<int64_t>(insert.slots.size());
  return {.name = insert.name,
          .inputs = {Rows(insert.tokens, insert.deviation, 1), Ints({count}, insert.slots),
                     CacheBytes(2, insert.block_bytes)},
          .attributes = {{"block_size", insert.block_size}}};
}

// A row of 512: an element of its value, then zeros, in each group.
OpCase InsertEdges() {
  const float infinity = 3.0e38f;
  std::vector<float> row(512);
  const float firsts[] = {0, -0.0f, 448, -449, 1e-6f, infinity, 0.0446f, 1e-40f};
  for (int64_t g = 0; g < 8; ++g) {
    row[64 * g] = firsts[g];
    row[64 * g + 1] = firsts[g] / 3;
    row[64 * g + 63] = -firsts[g] / 448;
  }
  OpCase op_case = InsertCase({.name = "edges", .tokens = 1, .slots = {5}});
  op_case.inputs[0] = As(DataType::kBfloat16, Floats({1, 512}, row));
  return op_case;
}

OpCase IntSlots() {
  OpCase op_case = InsertCase({.name = "int32_slots"});
  op_case.inputs[1] = As(DataType::kInt32, op_case.inputs[1]);
  return op_case;
}

// Rows that a cache may hold: codes without NaN, moderate scales.
Tensor FilledCache(int64_t blocks, int64_t block_size, int64_t block_bytes) {
  const GroupedRowFormat format = Fp8Ue8m0Row();
  Tensor cache = CacheBytes(blocks, block_bytes);
  const CacheRows rows =
      GroupedRows(format, {blocks, block_size, block_bytes}, cache.mutable_data());
  for (int64_t slot = 0; slot < blocks * block_size; ++slot) {
    const Tensor values = Random(DataType::kFloat, {512}, Normal{0, 2}, 100 + slot);
    std::vector<Bfloat16> tail(format.plain);
    const auto* x = static_cast<const float*>(values.data());
    for (int64_t i = 0; i < format.plain; ++i) tail[i] = Bfloat16(x[format.coded + i]);
    EncodeGroupedRow(format, x, tail.data(), rows.AtSlot(slot, 0));
  }
  return cache;
}

struct Gather {
  std::string name;
  std::vector<int64_t> lens = {7, 0, 12};
  std::vector<int64_t> gather_lens = {};
  std::vector<int64_t> table = {4, 1, -1, -1, 9, -3, 0, 2, 3};
  int64_t rows = 12;
  int64_t offset = 0;
};

OpCase GatherCase(const Gather& gather) {
  const int64_t count = static_cast<int64_t>(gather.lens.size());
  const int64_t columns = count == 0 ? 3 : static_cast<int64_t>(gather.table.size()) / count;
  return {.name = gather.name,
          .inputs = {Random(DataType::kBfloat16, {count, gather.rows, 512}, Normal{}, 5),
                     FilledCache(5, 4, 2881), Int32s({count}, gather.lens),
                     Int32s({count, columns}, gather.table),
                     gather.gather_lens.empty() ? Tensor() : Int32s({count}, gather.gather_lens)},
          .attributes = {{"block_size", 4}, {"offset", gather.offset}}};
}

}  // namespace

OpCases KCacheQuantInsertCases() {
  OpCase narrow = InsertCase({.name = "narrow"});
  narrow.inputs[0] = Random(DataType::kBfloat16, {5, 448}, Normal{}, 1);
  return OpCases("pagefuse.KCacheQuantInsert")
      .Add(InsertCase({.name = "scattered"}))
      .Add(WithSpecials(InsertCase({.name = "specials"}), 0))
      .Add(InsertCase({.name = "small_values", .deviation = 1e-5}))
      .Add(InsertCase({.name = "large_values", .deviation = 1e30}))
      .Add(InsertCase({.name = "odd_block_bytes", .block_bytes = 2337}))
      .Add(InsertCase({.name = "fewer_slots", .slots = {6, 1}}))
      .Add(InsertCase({.name = "last_of_a_slot_wins", .slots = {2, 5, 2, -7, 5}}))
      .Add(InsertCase({.name = "no_slots", .slots = {}}))
      .Add(InsertCase({.name = "no_tokens", .tokens = 0, .slots = {}}))
      .Add(InsertCase({.name = "block_of_one",
                       .tokens = 3,
                       .slots = {1, 0, -1},
                       .block_size = 1,
                       .block_bytes = 584}))
      .Add(InsertEdges())
      .Add(IntSlots())
      .Rejects(InsertCase({.name = "past_the_end", .slots = {0, 8}}),
               "input 1 \"slot_mapping\": expected slots below 8 (2 blocks of 4), got 8 at 1")
      .Rejects(InsertCase({.name = "small_block", .block_bytes = 2335}),
               "input 2 \"kv_cache\": expected [NB, S], S >= block_size * 584 with \"block_size\" "
               "= 4, got")
      .Rejects(InsertCase({.name = "more_slots", .slots = {0, 1, 2, 3, 4, 5}}),
               "input 1 \"slot_mapping\": expected [T'], T' <= T with T = 5 of \"k\", got [6]")
      .Rejects(InsertCase({.name = "no_block_size", .block_size = 0}),
               "attribute \"block_size\": expected at least 1, got 0")
      .Rejects(narrow, "input 0 \"k\": expected [T, 512], got [5, 448]");
}

OpCases KCacheDequantGatherCases() {
  OpCase one_length = GatherCase({.name = "one_length"});
  one_length.inputs[2] = Int32s({1}, {3});
  return OpCases("pagefuse.KCacheDequantGather")
      .Add(GatherCase({.name = "whole_sequences"}))
      .Add(GatherCase(
          {.name = "last_rows", .gather_lens = {3, 0, 9}, .table = {-1, 1, 9, 8, 7, 6, 0, 2, 3}}))
      .Add(GatherCase({.name = "offset", .gather_lens = {1, 0, 2}, .offset = 10}))
      .Add(GatherCase({.name = "nothing", .lens = {0, 0, 0}}))
      .Rejects(GatherCase({.name = "long", .lens = {13, 0, 0}}),
               "input 2 \"seq_lens\": expected lengths from 0 to 3 blocks of 4, got 13 at 0")
      .Rejects(GatherCase({.name = "negative", .lens = {1, -1, 0}}), "input 2 \"seq_lens\"")
      .Rejects(GatherCase({.name = "more", .gather_lens = {8, 0, 0}}),
               "input 4 \"gather_lens\": expected from 0 to 7 rows, got 8 at 0")
      .Rejects(GatherCase({.name = "low_offset", .offset = 1}),
               "input 2 \"seq_lens\": expected at most 12 - 1 rows (workspace, offset), got 12")
      .Rejects(GatherCase({.name = "block", .table = {4, 5, -1, -1, 9, -3, 0, 2, 3}}),
               "input 3 \"block_table\": expected blocks in [0, 5), got 5 at [0, 1]")
      .Rejects(GatherCase({.name = "negative_offset", .offset = -1}),
               "attribute \"offset\": expected at least 0")
      .Rejects(one_length,
               "input 2 \"seq_lens\": expected [R] with R = 3 of \"workspace\", got [1]");
}

}  // namespace pagefuse::pagefuse_ops
