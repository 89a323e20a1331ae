// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "op_test.h"
#include "special_rows.h"

#include "pagefuse/ops/kernels/formats/grouped_row.h"

namespace pagefuse::pagefuse_ops {
namespace {

struct Insert {
  std::string name;
  std::string format = "fp8_ds_mla";
  std::vector<int64_t> slots = {7, -1, 0, 3};
  int64_t tokens = 5;
  int64_t latent = 512;
  int64_t rotated = 64;
  int64_t row = 656;
  DataType type = DataType::kUint8;
  double deviation = 3;
  int64_t group = 128;
};

OpCase InsertCase(const Insert& insert) {
  const int64_t count = static_cast<int64_t>(insert.slots.size());
  const auto rows = [&](int64_t size, uint64_t seed) {
    const DataType type = insert.type == DataType::kUint8 ? DataType::kBfloat16 : insert.type;
    return Random(type, {insert.tokens, size}, Normal{0, insert.deviation}, seed);
  };
  const Filling filling =
      insert.type == DataType::kUint8 ? Filling(Uniform{0, 255}) : Filling(Normal{});
  return {.name = insert.name,
          .inputs = {rows(insert.latent, 1), rows(insert.rotated, 2), Ints({count}, insert.slots),
                     Random(insert.type, {2, 4, insert.row}, filling, 3)},
          .attributes = {{"format", insert.format}, {"quant_group_size", insert.group}}};
}

Insert Plain(std::string name, int64_t latent, int64_t rotated,
             DataType type = DataType::kBfloat16) {
  return {.name = std::move(name),
          .format = "bf16",
          .latent = latent,
          .rotated = rotated,
          .row = latent + rotated,
          .type = type};
}

// Rows that a cache may hold.
Tensor FilledCache(int64_t blocks, int64_t block_size) {
  const GroupedRowFormat format = Fp8DsMlaRow();
  Tensor cache = *Tensor::Allocate(DataType::kUint8, {blocks, block_size, format.TokenBytes()});
  const CacheRows rows = GroupedRows(format, {blocks, block_size, block_size * format.TokenBytes()},
                                     cache.mutable_data());
  for (int64_t slot = 0; slot < blocks * block_size; ++slot) {
    const Tensor values = Random(DataType::kFloat, {format.elements()}, Normal{0, 2}, 100 + slot);
    std::vector<Bfloat16> tail(format.plain);
    const auto* x = static_cast<const float*>(values.data());
    for (int64_t i = 0; i < format.plain; ++i) tail[i] = Bfloat16(x[format.coded + i]);
    EncodeGroupedRow(format, x, tail.data(), rows.AtSlot(slot, 0));
  }
  return cache;
}

struct Gather {
  std::string name;
  std::vector<int64_t> lens = {5, 0, 3};
  std::vector<int64_t> starts = {4, 2, 0};
  std::vector<int64_t> table = {3, 1, -1, 9, 2, -5};
  int64_t block_size = 4;
};

OpCase GatherCase(const Gather& gather) {
  const int64_t count = static_cast<int64_t>(gather.lens.size());
  return {.name = gather.name,
          .inputs = {FilledCache(4, gather.block_size), Int32s({count, 2}, gather.table),
                     Int32s({count}, gather.lens), Int32s({count}, gather.starts)}};
}

}  // namespace

OpCases MlaCacheInsertCases() {
  Insert typed = Plain("typed", 512, 64);
  typed.format = "fp8_ds_mla";
  const auto latent_only = [](Insert insert) {
    OpCase op_case = InsertCase(insert);
    op_case.inputs[1] = Tensor();
    return op_case;
  };
  OpCase fewer_rows = InsertCase({.name = "fewer_rows"});
  fewer_rows.inputs[1] = Random(DataType::kBfloat16, {4, 64}, Normal{}, 2);
  return OpCases("pagefuse.MlaCacheInsert")
      .Add(InsertCase({.name = "quantised"}))
      .Add(WithSpecials(InsertCase({.name = "quantised_specials"}), 0))
      .Add(InsertCase({.name = "quantised_tiny", .deviation = 1e-39}))
      .Add(InsertCase({.name = "quantised_zero", .deviation = 0}))
      .Add(InsertCase({.name = "quantised_last_wins", .slots = {1, 2, 1, 2, 6}}))
      .Add(InsertCase({.name = "quantised_no_tokens", .slots = {}, .tokens = 0}))
      .Add(InsertCase(
          {.name = "quantised_small", .latent = 32, .rotated = 8, .row = 32 + 4 + 16, .group = 32}))
      .Add(InsertCase(
          {.name = "quantised_by_8", .latent = 24, .rotated = 6, .row = 24 + 12 + 12, .group = 8}))
      .Add(InsertCase(Plain("plain", 512, 64)))
      .Add(InsertCase(Plain("plain_odd", 17, 3)))
      .Add(InsertCase(Plain("plain_without_latent", 0, 8)))
      .Add(InsertCase(Plain("plain_float", 32, 8, DataType::kFloat)))
      .Add(InsertCase(Plain("plain_float16", 31, 5, DataType::kFloat16)))
      .Add(latent_only(Plain("latent_only", 16, 0, DataType::kFloat)))
      .Rejects(latent_only({.name = "latent_only_quantised"}), "input 1 \"k_pe\"")
      .Rejects(
          latent_only(Plain("latent_only_row", 16, 8)),
          "input 3 \"kv_cache\": expected [NB, BS, L] with L = 16 of \"kv_c\", format = bf16, no \"k_pe\"")
      .Rejects(InsertCase({.name = "past_the_end", .slots = {8}}),
               "input 2 \"slot_mapping\": expected slots below 8")
      .Rejects(InsertCase({.name = "latent", .latent = 500}),
               "input 0 \"kv_c\": expected [T, L], L % group = 0 with group = 128, got [5, 500]")
      .Rejects(InsertCase({.name = "rotated", .rotated = 32}), "input 3 \"kv_cache\"")
      .Rejects(InsertCase({.name = "row", .row = 657}),
               "input 3 \"kv_cache\": expected [NB, BS, row_bytes] with row_bytes = 656")
      .Rejects(InsertCase({.name = "slots", .slots = {0, 1, 2, 3, 4, 5}}),
               "input 2 \"slot_mapping\": expected [T'], T' <= T with T = 5 of \"kv_c\", got [6]")
      .Rejects(InsertCase(typed), "input 3 \"kv_cache\": expected type uint8")
      .Rejects(InsertCase({.name = "format", .format = "fp8"}),
               "attribute \"format\": expected bf16 or fp8_ds_mla, got \"fp8\"")
      .Rejects(fewer_rows, "input 1 \"k_pe\"");
}

OpCases MlaGatherUpconvertCases() {
  return OpCases("pagefuse.MlaGatherUpconvert")
      .Add(GatherCase({.name = "gap_between_requests"}))
      .Add(GatherCase({.name = "all_empty", .lens = {0, 0, 0}}))
      .Add(GatherCase({.name = "no_requests", .lens = {}, .starts = {}, .table = {}}))
      .Add(GatherCase({.name = "one", .lens = {8}, .starts = {3}, .table = {0, 3}}))
      .Add(GatherCase(
          {.name = "blocks_without_room", .lens = {0, 0, 0}, .starts = {0, 0, 0}, .block_size = 0}))
      .Rejects(GatherCase({.name = "rows_of_blocks_without_room", .block_size = 0}),
               "input 2 \"seq_lens\": expected lengths from 0 to 0")
      .Rejects(GatherCase({.name = "overlap", .starts = {2, 2, 0}}),
               "input 3 \"workspace_starts\": expected rows of its own for each request")
      .Rejects(GatherCase({.name = "long", .lens = {9, 0, 3}, .starts = {4, 2, 0}}),
               "input 2 \"seq_lens\": expected lengths from 0 to 8")
      .Rejects(GatherCase({.name = "negative_length", .lens = {-1, 0, 3}}), "input 2 \"seq_lens\"")
      .Rejects(GatherCase({.name = "negative_start", .starts = {4, -1, 0}}),
               "input 3 \"workspace_starts\": expected rows of at least 0, got -1")
      .Rejects(GatherCase({.name = "block", .table = {3, 4, -1, 9, 2, -5}}),
               "input 1 \"block_table\": expected blocks in [0, 4), got 4 at [0, 1]");
}

}  // namespace pagefuse::pagefuse_ops
