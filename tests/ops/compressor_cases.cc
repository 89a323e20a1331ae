// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "op_test.h"

#include "pagefuse/ops/kernels/formats/grouped_row.h"

namespace pagefuse::pagefuse_ops {
namespace {

struct State {
  std::string name;
  DataType type = DataType::kFloat;
  int64_t ratio = 4;
  int64_t width = 24;
  int64_t row = 48;
  std::vector<int64_t> positions = {3, 4, 130, 6, 0};
  std::vector<int64_t> slots = {7, -1, 0, 3};
};

OpCase StateCase(const State& state) {
  const int64_t positions = static_cast<int64_t>(state.positions.size());
  const int64_t slots = static_cast<int64_t>(state.slots.size());
  return {.name = state.name,
          .inputs = {Random(state.type, {5, state.width}, Normal{}, 1),
                     Random(state.type, {5, state.width}, Normal{}, 2),
                     Random(DataType::kFloat, {state.ratio, state.width}, Normal{}, 3),
                     Ints({positions}, state.positions), Ints({slots}, state.slots),
                     Random(DataType::kFloat, {2, 4, state.row}, Normal{}, 4)},
          .attributes = {{"compress_ratio", state.ratio}}};
}

// Two requests with state blocks in turn; tokens at the given positions.
struct Compress {
  std::string name;
  std::string format = "indexer_fp8";
  int64_t ratio = 4;
  int64_t overlap = 1;
  int64_t size = 128;
  int64_t rotated = 64;
  int64_t row = 0;  // of kv_cache: bytes; 0: what the format needs
  std::vector<int64_t> positions = {3, 7, 5, 11, 15};
  std::vector<int64_t> requests = {0, 0, 1, 1, 1};
  std::vector<int64_t> slots = {1, 2, 3, -1, 4};
  std::vector<int64_t> kv_slots = {5, 0, 1, 2, 3};
  std::vector<int64_t> table = {3, 0, -9, 99, 5, 1, 4, 2};
  DataType weight_type = DataType::kBfloat16;
  double deviation = 2;
  int64_t state_block = 4;
  DataType cache_type = DataType::kUint8;  // else of rows of numbers
  int64_t group = 64;
  int64_t cos_sin_rows = 0;
  int64_t hadamard = 0;
};

GroupedRowFormat RowOf(const Compress& c) {
  if (c.format == "fp8_ue8m0") return Fp8Ue8m0Row(c.size - c.rotated, c.rotated, c.group);
  return c.format == "indexer_fp8" ? IndexerFp8Row(c.size, c.size) : IndexerMxfp4Row(c.size);
}

OpCase CompressCase(const Compress& c) {
  const int64_t tokens = static_cast<int64_t>(c.positions.size());
  const int64_t columns = static_cast<int64_t>(c.table.size()) / 2;
  const bool plain = c.cache_type != DataType::kUint8;
  const int64_t block_bytes = c.row > 0 || plain ? c.row : GroupedBlockBytes(RowOf(c), 3) + 5;
  const int64_t state_row = 2 * (1 + c.overlap) * c.size;
  return {
      .name = c.name,
      .inputs = {Random(DataType::kFloat, {6, c.state_block, state_row}, Normal{0, c.deviation}, 1),
                 Int32s({tokens}, c.requests), Ints({tokens}, c.positions), Ints({tokens}, c.slots),
                 Int32s({2, columns}, c.table), Random(c.weight_type, {c.size}, Normal{1, 0.2}, 2),
                 Random(DataType::kFloat, {16, c.rotated}, Uniform{-1, 1}, 3),
                 Ints({tokens}, c.kv_slots),
                 plain ? Random(c.cache_type, {2, 3, c.size}, Normal{}, 4)
                       : Random(DataType::kUint8, {2, block_bytes}, Uniform{0, 255}, 4)},
      .attributes = {{"format", c.format},
                     {"compress_ratio", c.ratio},
                     {"overlap", c.overlap},
                     {"kv_block_size", 3},
                     {"quant_group_size", c.group},
                     {"cos_sin_rows", c.cos_sin_rows},
                     {"hadamard", c.hadamard}}};
}

// The default of `overlap` for this ratio.
OpCase WithoutOverlapAttribute(OpCase op_case) {
  op_case.attributes.erase(op_case.attributes.begin() + 2);
  return op_case;
}

// A window of two rows: scores log 1 and log 3 weigh kv 4 and 8 to 7. The norm of equal elements
// is 1; with the table's cosine 1 and sine 0 rotation changes nothing. amax 1 has the scale
// 2^-8, codes of 256.
OpCase ByHand() {
  const float log3 = 1.0986123f;
  std::vector<float> state;
  for (const auto& [kv, score] : {std::pair{4.0f, 0.0f}, std::pair{8.0f, log3}}) {
    state.insert(state.end(), 4, kv);
    state.insert(state.end(), 4, score);
  }
  return {.name = "by_hand",
          .inputs = {Floats({1, 2, 8}, state), Int32s({1}, {0}), Ints({1}, {1}), Ints({1}, {1}),
                     Int32s({1, 1}, {0}), Floats({4}, {1, 1, 1, 1}), Floats({1, 2}, {1, 0}),
                     Ints({1}, {0}), Codes(DataType::kUint8, {1, 9}, std::vector<uint8_t>(9, 9))},
          .attributes = {{"format", "indexer_fp8"},
                         {"compress_ratio", 2},
                         {"kv_block_size", 1},
                         {"eps", 0.0f}},
          .outputs = {Codes(DataType::kUint8, {1, 9},
                            {0x78, 0x78, 0x78, 0x78, 0x00, 0x00, 0x80, 0x3B, 9})}};
}

// The same window in a cache of float: c = (4 * 1 + 8 * 3) / 4 = 7 in each column, normed by weights
// 1 to 4, and the last two columns turned by a quarter with the row of the second token.
OpCase PlainByHand() {
  OpCase op_case = ByHand();
  op_case.inputs[1] = Int32s({2}, {0, 0});
  op_case.inputs[2] = Ints({2}, {0, 1});
  op_case.inputs[3] = Ints({2}, {0, 1});
  op_case.inputs[5] = Floats({4}, {1, 2, 3, 4});
  op_case.inputs[6] = Floats({2, 2}, {9, 9, 0, 1});
  op_case.inputs[7] = Ints({2}, {-1, 0});
  op_case.inputs[8] = Floats({1, 1, 4}, {9, 9, 9, 9});
  op_case.attributes[0].second = std::string("none");
  op_case.attributes.emplace_back("cos_sin_rows", 1);
  op_case.name = "plain_by_hand";
  op_case.outputs = {Floats({1, 1, 4}, {1, 2, -4, 3})};
  return op_case;
}

}  // namespace

OpCases CompressorStateInsertCases() {
  OpCase no_ratio = StateCase({.name = "no_ratio"});
  no_ratio.attributes[0].second = int64_t{0};
  OpCase wide_ape = StateCase({.name = "ape"});
  wide_ape.inputs[2] = Random(DataType::kFloat, {4, 25}, Normal{}, 3);
  return OpCases("pagefuse.CompressorStateInsert")
      .Add(StateCase({.name = "float"}))
      .Add(StateCase({.name = "bfloat16", .type = DataType::kBfloat16, .width = 17, .row = 34}))
      .Add(StateCase({.name = "ratio_128", .ratio = 128}))
      .Add(StateCase({.name = "narrow", .width = 7, .row = 20}))
      .Add(StateCase({.name = "last_of_a_slot_wins", .slots = {2, 5, 2, 5, -2}}))
      .Add(StateCase({.name = "no_slots", .slots = {}}))
      .Add(StateCase({.name = "positions_of_slots", .positions = {3, -1, 9, 2}}))
      .Rejects(StateCase({.name = "past_the_end", .slots = {8}}),
               "input 4 \"slot_mapping\": expected slots below 8")
      .Rejects(StateCase({.name = "negative_position", .positions = {-4, 0, 0, 0}}),
               "input 3 \"positions\": expected positions of at least 0, got -4 at 0")
      .Rejects(StateCase({.name = "few_positions", .positions = {1}}),
               "input 4 \"slot_mapping\": expected [T'], T' <= T'' with T'' = 1 of \"positions\", "
               "got [4]")
      .Rejects(StateCase({.name = "slots", .slots = {0, 1, 2, 3, 4, 5}}),
               "input 4 \"slot_mapping\": expected [T'], T' <= T with T = 5 of \"kv\", got [6]")
      .Rejects(StateCase({.name = "row", .row = 46}),
               "input 5 \"state_cache\": expected [NB, BS, 2 * W], W >= w with w = 24 of \"kv\"")
      .Rejects(no_ratio, "attribute \"compress_ratio\": expected at least 1, got 0")
      .Rejects(
          wide_ape,
          "input 2 \"ape\": expected [compress_ratio, w] with \"compress_ratio\" = 4, w = 24 of "
          "\"kv\"");
}

OpCases CompressCacheInsertCases() {
  using enum DataType;
  OpCase slots_of_all = CompressCase({.name = "kv_slots"});
  slots_of_all.inputs[7] = Ints({1}, {0});
  OpCase no_blocks = CompressCase({.name = "no_blocks",
                                   .format = "none",
                                   .positions = {0, 1, 2, 4, 5},
                                   .kv_slots = {-1, -1, -1, -1, -1},
                                   .cache_type = kFloat});
  no_blocks.inputs[8] = Random(kFloat, {0, 3, 128}, Normal{}, 4);
  // As the op that reads index keys has them.
  OpCase rows_of_bytes = CompressCase({.name = "rows_of_bytes"});
  rows_of_bytes.inputs[8] = Random(kUint8, {2, 3, 132}, Uniform{0, 255}, 4);
  return OpCases("pagefuse.CompressCacheInsert")
      .Add(ByHand())
      .Add(PlainByHand())
      .Add(no_blocks)
      .Add(CompressCase({.name = "none", .format = "none", .size = 512, .cache_type = kFloat}))
      .Add(CompressCase({.name = "none_without_overlap",
                         .format = "none",
                         .ratio = 8,
                         .overlap = 0,
                         .size = 32,
                         .rotated = 8,
                         .positions = {7, 8, 15, 7, 15},
                         .weight_type = kFloat,
                         .state_block = 8,
                         .cache_type = kFloat,
                         .cos_sin_rows = 1}))
      .Add(CompressCase({.name = "none_odd_size",
                         .format = "none",
                         .ratio = 3,
                         .size = 19,
                         .rotated = 6,
                         .positions = {2, 5, 8, 11, 14},
                         .cache_type = kFloat16}))
      .Add(CompressCase({.name = "none_last_of_a_slot_wins",
                         .format = "none",
                         .size = 40,
                         .rotated = 40,
                         .positions = {3, 7, 3, 7, 15},
                         .kv_slots = {1, 1, 1, 4, 4},
                         .cache_type = kFloat,
                         .cos_sin_rows = 1}))
      .Add(CompressCase({.name = "bf16", .format = "bf16", .size = 512, .cache_type = kBfloat16}))
      .Add(CompressCase({.name = "bf16_small",
                         .format = "bf16",
                         .size = 16,
                         .rotated = 8,
                         .cache_type = kBfloat16,
                         .cos_sin_rows = 1}))
      .Add(CompressCase({.name = "attention_rows_of_tokens",
                         .format = "fp8_ue8m0",
                         .size = 512,
                         .cos_sin_rows = 1}))
      .Add(CompressCase(
          {.name = "attention_small", .format = "fp8_ue8m0", .size = 32, .rotated = 8, .group = 8}))
      .Add(CompressCase({.name = "indexer_fp8_small", .size = 16, .rotated = 8}))
      .Add(rows_of_bytes)
      .Add(CompressCase({.name = "hadamard_fp8", .hadamard = 1}))
      .Add(CompressCase({.name = "hadamard_fp8_small", .size = 16, .rotated = 8, .hadamard = 1}))
      .Add(CompressCase({.name = "hadamard_mxfp4", .format = "indexer_mxfp4", .hadamard = 1}))
      .Add(CompressCase({.name = "indexer_fp8"}))
      // Rows at multiples of 16 bytes.
      .Add(CompressCase({.name = "indexer_fp8_aligned", .row = 400}))
      .Add(CompressCase({.name = "hadamard_fp8_aligned", .row = 400, .hadamard = 1}))
      .Add(CompressCase({.name = "indexer_mxfp4_aligned", .format = "indexer_mxfp4", .row = 208}))
      .Add(CompressCase(
          {.name = "hadamard_mxfp4_aligned", .format = "indexer_mxfp4", .row = 208, .hadamard = 1}))
      .Add(CompressCase(
          {.name = "attention_aligned", .format = "fp8_ue8m0", .size = 512, .row = 1760}))
      .Add(CompressCase({.name = "attention_ratio_64_aligned",
                         .format = "fp8_ue8m0",
                         .ratio = 64,
                         .overlap = 0,
                         .size = 512,
                         .row = 1760,
                         .positions = {63, 64, 127, 63, 127},
                         .state_block = 32,
                         .cos_sin_rows = 1}))
      .Add(CompressCase({.name = "attention_ratio_12_aligned",
                         .format = "fp8_ue8m0",
                         .ratio = 12,
                         .size = 512,
                         .row = 1760,
                         .positions = {11, 5, 12, 11, 23},
                         .weight_type = kFloat,
                         .state_block = 8,
                         .cos_sin_rows = 1}))
      .Add(WithoutOverlapAttribute(CompressCase({.name = "overlap_by_ratio"})))
      .Add(CompressCase({.name = "indexer_mxfp4", .format = "indexer_mxfp4"}))
      .Add(CompressCase({.name = "attention", .format = "fp8_ue8m0", .size = 512}))
      .Add(CompressCase({.name = "without_overlap",
                         .format = "fp8_ue8m0",
                         .ratio = 8,
                         .overlap = 0,
                         .size = 512,
                         .positions = {7, 8, 15, 7, 15},
                         .weight_type = kFloat}))
      .Add(CompressCase({.name = "ratio_3",
                         .format = "indexer_mxfp4",
                         .ratio = 3,
                         .size = 96,
                         .rotated = 10,
                         .positions = {2, 5, 8, 11, 14}}))
      .Add(CompressCase({.name = "ratio_1_odd_size",
                         .ratio = 1,
                         .overlap = 0,
                         .size = 37,
                         .rotated = 6,
                         .positions = {0, 1, 2, 3, 4}}))
      .Add(CompressCase({.name = "small_values", .deviation = 1e-4}))
      .Add(CompressCase({.name = "last_of_a_slot_wins",
                         .positions = {3, 7, 3, 7, 15},
                         .kv_slots = {1, 1, 1, 4, 4}}))
      .Add(CompressCase({.name = "no_boundary", .positions = {0, 1, 2, 4, 5}}))
      .Add(CompressCase(
          {.name = "no_tokens", .positions = {}, .requests = {}, .slots = {}, .kv_slots = {}}))
      .Rejects(CompressCase({.name = "slot", .kv_slots = {6, 0, 1, 2, 3}}),
               "input 7 \"kv_slot_mapping\": expected slots below 6 (2 blocks of 3), got 6 at 0")
      .Rejects(CompressCase({.name = "request", .requests = {0, 2, 1, 1, 1}}),
               "input 1 \"token_to_req\": expected requests in [0, 2), got 2 at 1")
      .Rejects(CompressCase({.name = "block", .table = {3, 6, 0, 0, 5, 1, 4, 2}}),
               "input 4 \"block_table\": expected blocks in [0, 6), got 6 at [0, 1]")
      .Rejects(CompressCase({.name = "position", .positions = {3, 19, 5, 11, 15}}),
               "input 2 \"positions\": expected positions within 4 blocks of 4, got 19 at 1")
      .Rejects(CompressCase({.name = "negative", .positions = {3, 7, -1, 11, 15}}),
               "input 2 \"positions\": expected positions of at least 0, got -1 at 2")
      .Rejects(CompressCase({.name = "table",
                             .positions = {19, 7, 5, 11, 15},
                             .table = {3, 0, 1, 1, 1, 5, 1, 4, 2, 2}}),
               "input 2 \"positions\": expected windows that start in [0, 16), got 16 at 0")
      .Rejects(CompressCase({.name = "rotated", .rotated = 130}), "input 6 \"cos_sin\"")
      .Rejects(CompressCase({.name = "width", .format = "fp8_ue8m0", .size = 100}),
               "input 5 \"rms_weight\": expected a multiple of 64 elements before 64 for format "
               "\"fp8_ue8m0\", got [100]")
      .Rejects(CompressCase({.name = "row_of_a_token",
                             .positions = std::vector<int64_t>(17, 0),
                             .requests = std::vector<int64_t>(17, 0),
                             .slots = std::vector<int64_t>(17, -1),
                             .kv_slots = std::vector<int64_t>(17, -1),
                             .cos_sin_rows = 1}),
               "input 6 \"cos_sin\": expected [P, R], P >= table_rows with table_rows = 17, got")
      .Rejects(CompressCase({.name = "plain_type", .format = "bf16", .cache_type = kFloat}),
               "input 8 \"kv_cache\": expected type bfloat16")
      .Rejects(CompressCase({.name = "block_bytes", .row = 395}),
               "input 8 \"kv_cache\": expected blocks of at least kv_block_size * row_bytes = 3 * "
               "132 bytes, got [2, 395]")
      .Rejects(
          CompressCase(
              {.name = "hadamard_rows", .format = "fp8_ue8m0", .size = 512, .hadamard = 1}),
          "attribute \"hadamard\": expected 0 with format = fp8_ue8m0, whose rows are no index "
          "keys")
      .Rejects(
          CompressCase({.name = "hadamard_size", .size = 96, .hadamard = 1}),
          "input 5 \"rms_weight\": expected rows of a power of two with hadamard = 1, got [96]")
      .Rejects(CompressCase({.name = "ratio", .ratio = 0}),
               "attribute \"compress_ratio\": expected 1 to 1073741824, got 0")
      .Rejects(
          CompressCase({.name = "format", .format = "fp8"}),
          "attribute \"format\": expected none, bf16, fp8_ue8m0, indexer_fp8 or indexer_mxfp4, got")
      .Rejects(slots_of_all,
               "input 7 \"kv_slot_mapping\": expected [T] with T = 5 of \"token_to_req\", got [1]");
}

}  // namespace pagefuse::pagefuse_ops
