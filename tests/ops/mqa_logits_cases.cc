// SPDX-License-Identifier: Apache-2.0
// MqaLogits and PagedMqaLogits: index scores, dense and paged keys.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "op_test.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();

// Codes of every magnitude but NaN, subnormal ones included.
Tensor RandomCodes(DataType type, std::vector<int64_t> dims, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> codes(*ElementCount(dims));
  for (uint8_t& code : codes) {
    code = static_cast<uint8_t>(random() % 256);
    if ((code & 0x7F) == 0x7F) code ^= 1;
  }
  return Codes(type, std::move(dims), codes);
}

// Codes of numbers around 1, as quantised queries and keys have them.
Tensor NormalCodes(std::vector<int64_t> dims, uint64_t seed) {
  return Random(DataType::kFloat8E4M3FN, std::move(dims), Normal{0, 2}, seed);
}

struct Sizes {
  int64_t rows, heads, head_size, keys;
};

// Row m sees keys [m, keys - m): another tail in every row, and none at last.
OpCase RandomMqa(const std::string& name, const Sizes& s) {
  std::vector<int32_t> begins;
  std::vector<int32_t> ends;
  for (int64_t m = 0; m < s.rows; ++m) {
    begins.push_back(static_cast<int32_t>(std::min(m, s.keys)));
    ends.push_back(static_cast<int32_t>(std::max(s.keys - m, int64_t{begins.back()})));
  }
  return {.name = name,
          .inputs = {NormalCodes({s.rows, s.heads, s.head_size}, 1),
                     NormalCodes({s.keys, s.head_size}, 2),
                     Random(DataType::kFloat, {s.keys}, Uniform{0.1, 1}, 3),
                     Random(DataType::kFloat, {s.rows, s.heads}, Normal{0, 0.1}, 4),
                     Int32s({s.rows}, begins), Int32s({s.rows}, ends)}};
}

// One head rectified away, one scale negative: 0.5 * max(0, q . k * s) + 2 * max(0, ...).
OpCase MqaByHand() {
  return {.name = "by_hand",
          .inputs = {As(DataType::kFloat8E4M3FN, Floats({1, 2, 2}, {1, 2, -1, 0.5f})),
                     As(DataType::kFloat8E4M3FN, Floats({4, 2}, {3, 1, -2, 4, 1, 1, 8, 8})),
                     Floats({4}, {2, 1, -0.5f, 1}), Floats({1, 2}, {0.5f, 2}), Int32s({1}, {0}),
                     Int32s({1}, {3})},
          .outputs = {Floats({1, 4}, {5, 11, 0.5f, kNone})}};
}

OpCase Scaled(OpCase op_case, double low, double high) {
  op_case.inputs[2] = Random(DataType::kFloat, op_case.inputs[2].dims(), Uniform{low, high}, 9);
  return op_case;
}

OpCases& AddRejected(OpCases& cases) {
  const OpCase good = MqaByHand();
  return cases
      .Rejects(With(good, 5, Int32s({1}, {5})),
               "input 5 \"ke\": expected 0, the range's begin, to 4, the number of columns, got 5")
      .Rejects(With(good, 4, Int32s({1}, {-1})), "input 4 \"ks\": expected 0 or more, got -1 at 0")
      .Rejects(With(good, 4, Int32s({1}, {4})), "input 5 \"ke\": expected 4, the range's begin")
      .Rejects(With(good, 1, NormalCodes({4, 3}, 1)),
               "input 1 \"k\": expected [N, D] with D = 2 of \"q\", got [4, 3]")
      .Rejects(With(good, 2, Floats({3}, {1, 1, 1})),
               "input 2 \"k_scale\": expected [N] or [N, 1] with N = 4 of \"k\", got [3]")
      .Rejects(With(good, 2, Floats({4, 2}, std::vector<float>(8, 1))),
               "input 2 \"k_scale\": expected [N] or [N, 1] with N = 4 of \"k\", got [4, 2]")
      .Rejects(
          With(good, 3, Floats({2, 1}, {1, 1})),
          "input 3 \"weights\": expected [M, H] with M = 1 of \"q\", H = 2 of \"q\", got [2, 1]")
      .Rejects(With(good, 0, Floats({1, 2, 2}, {1, 2, 3, 4})),
               "input 0 \"q\": expected type float8e4m3fn, uint8, got float");
}

struct PagedSizes {
  int64_t queries, heads, head_size, block_size;
};

// Blocks of e4m3fn codes, then float scales; every byte behind the scales' end of a block is none.
Tensor RandomCache(int64_t blocks, const PagedSizes& s) {
  Tensor cache = RandomCodes(DataType::kUint8, {blocks, s.block_size, 1, s.head_size + 4}, 11);
  const Tensor codes = NormalCodes({blocks, s.block_size * s.head_size}, 12);
  const Tensor scales = Random(DataType::kFloat, {blocks, s.block_size}, Uniform{0.1, 1}, 13);
  auto* bytes = static_cast<uint8_t*>(cache.mutable_data());
  const auto* code = static_cast<const uint8_t*>(codes.data());
  const auto* scale = static_cast<const uint8_t*>(scales.data());
  for (int64_t b = 0; b < blocks; ++b) {
    bytes = std::copy_n(code + b * s.block_size * s.head_size, s.block_size * s.head_size, bytes);
    bytes = std::copy_n(scale + b * s.block_size * 4, s.block_size * 4, bytes);
  }
  return cache;
}

// Sequences of the given lengths over shuffled blocks; unused table entries hold garbage.
OpCase PagedCase(const std::string& name, const std::vector<int32_t>& lengths,
                 const PagedSizes& s) {
  const int64_t sequences = static_cast<int64_t>(lengths.size());
  const int64_t longest = lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
  const int64_t columns = longest / s.block_size + 1;
  const int64_t blocks = sequences * columns;
  std::vector<int32_t> order(blocks);
  for (int64_t i = 0; i < blocks; ++i) order[i] = static_cast<int32_t>(i * 7 % blocks);
  if (blocks % 7 == 0) std::reverse(order.begin(), order.end());
  for (int64_t b = 0; b < sequences; ++b) {
    for (int64_t i = (lengths[b] + s.block_size - 1) / s.block_size; i < columns; ++i) {
      order[b * columns + i] = i % 2 == 0 ? -1 : 123456;
    }
  }
  return {.name = name,
          .inputs = {NormalCodes({sequences, s.queries, s.heads, s.head_size}, 14),
                     RandomCache(blocks, s),
                     Random(DataType::kFloat, {sequences * s.queries, s.heads}, Normal{0, 0.1}, 15),
                     Int32s({sequences}, lengths), Int32s({sequences, columns}, order)}};
}

OpCase WithLength(OpCase op_case, int64_t length) {
  op_case.inputs.resize(std::max<size_t>(op_case.inputs.size(), 6));
  op_case.inputs[5] = Ints({}, {length});
  return op_case;
}

// The same sequences with another number of queries each, packed.
OpCase Packed(OpCase op_case, const std::vector<int32_t>& queries) {
  std::vector<int32_t> starts = {0};
  for (const int32_t count : queries) starts.push_back(starts.back() + count);
  const std::vector<int64_t> dims = op_case.inputs[0].dims();
  op_case.inputs[0] = NormalCodes({starts.back(), dims[2], dims[3]}, 21);
  op_case.inputs[2] = Random(DataType::kFloat, {starts.back(), dims[2]}, Normal{0, 0.1}, 22);
  op_case.inputs.resize(6);
  op_case.inputs.push_back(Int32s({static_cast<int64_t>(starts.size())}, starts));
  return op_case;
}

// Numbers in place of codes.
OpCase Plain(OpCase op_case, DataType query_type, DataType key_type) {
  const std::vector<int64_t> q = op_case.inputs[0].dims(), cache = op_case.inputs[1].dims();
  op_case.inputs[0] = Random(query_type, q, Normal{}, 23);
  op_case.inputs[1] = Random(key_type, {cache[0], cache[1], cache[3] - 4}, Normal{}, 24);
  op_case.attributes.emplace_back("format", "bf16");
  return op_case;
}

// Numbers as queries of keys that are codes.
OpCase PlainQueries(OpCase op_case, DataType type) {
  op_case.inputs[0] = Random(type, op_case.inputs[0].dims(), Normal{}, 25);
  return op_case;
}

// Keys of any nibbles, under scales from 1/8 to 8.
OpCase Packed4(OpCase op_case) {
  const std::vector<int64_t> q = op_case.inputs[0].dims(), cache = op_case.inputs[1].dims();
  const int64_t blocks = cache[0], tokens = cache[1], size = q.back(), row = size / 2 + size / 32;
  Tensor keys = Random(DataType::kUint8, {blocks, tokens, row}, Uniform{0, 255}, 26);
  for (int64_t block = 0; block < blocks; ++block) {
    uint8_t* scales = keys.mutable_values<uint8_t>().data() + (block * row + size / 2) * tokens;
    for (int64_t i = 0; i < tokens * size / 32; ++i) {
      scales[i] = static_cast<uint8_t>(124 + (i + block) % 7);
    }
  }
  op_case.inputs[1] = keys;
  op_case.attributes.emplace_back("format", "mxfp4");
  return op_case;
}

OpCase WithRatio(OpCase op_case, int64_t ratio) {
  op_case.attributes.emplace_back("ratio", ratio);
  return op_case;
}

// One key a block of two: keys [1, 2] and [4, -1] with scales 0.5 and 2, one head of weight 3.
OpCase PagedByHand() {
  const std::vector<uint8_t> codes = {0x38, 0x40, 0, 0, 0, 0, 0, 0x3F, 0, 0, 0, 0,
                                      0x48, 0xB8, 0, 0, 0, 0, 0, 0x40, 0, 0, 0, 0};
  return {.name = "by_hand",
          .inputs = {As(DataType::kFloat8E4M3FN, Floats({1, 2, 1, 2}, {1, 1, 2, -1})),
                     Codes(DataType::kUint8, {2, 2, 1, 6}, codes), Floats({2, 1}, {3, 1}),
                     Int32s({1}, {3}), Int32s({1, 2}, {0, 1}), Ints({}, {4})},
          .outputs = {Floats({2, 4}, {4.5f, 0, kNone, kNone, 0, 0, 18, kNone})}};
}

OpCases& AddRejectedPaged(OpCases& cases) {
  const OpCase good = PagedByHand();
  return cases
      .Rejects(With(good, 3, Int32s({1}, {5})),
               "input 3 \"context_lens\": expected 0 to 4 (the logits have 4 columns, the block "
               "table has room for 4), got 5 at 0")
      .Rejects(With(good, 5, Ints({}, {2})), "input 3 \"context_lens\": expected 0 to 2")
      .Rejects(With(good, 3, Int32s({1}, {-1})), "input 3 \"context_lens\": expected 0 to 4")
      .Rejects(With(good, 4, Int32s({1, 2}, {0, 2})),
               "input 4 \"block_tables\": block 2 at [0, 1] is outside [0, 2)")
      .Rejects(With(good, 4, Int32s({1, 2}, {-1, 1})),
               "input 4 \"block_tables\": block -1 at [0, 0] is outside [0, 2)")
      .Rejects(With(good, 5, Ints({}, {-1})), "input 5 \"max_model_len\": expected 0 to")
      .Rejects(With(good, 5, Ints({2}, {4, 4})), "input 5 \"max_model_len\": expected [] or [1]")
      .Rejects(With(good, 2, Floats({1, 1}, {1})),
               "input 2 \"weights\": expected [rows, H] with rows = 2")
      .Rejects(With(Packed(PagedCase("starts", {9, 30}, {1, 3, 16, 4}), {0, 2}), 6,
                    Int32s({3}, {0, 1, 3})),
               "input 6 \"query_start_loc\": expected 2 last, the number of query tokens, got 3")
      .Rejects(WithRatio(PagedByHand(), 0), "attribute \"ratio\": expected at least 1, got 0")
      .Rejects(With(good, 1, Codes(DataType::kUint8, {2, 2, 1, 7}, std::vector<uint8_t>(28))),
               "input 1 \"kv_cache\": expected [NB, BS, 1, row] or [NB, BS, row] with row = 6");
}

}  // namespace

OpCases PagedMqaLogitsCases() {
  OpCases cases("pagefuse.PagedMqaLogits");
  OpCase flat_cache = PagedCase("flat_cache", {9, 30}, {1, 4, 32, 8});
  const std::vector<int64_t> dims = flat_cache.inputs[1].dims();
  flat_cache.inputs[1] = *flat_cache.inputs[1].Reshaped({dims[0], dims[1], dims[3]});
  OpCase uint8 = PagedCase("uint8", {21}, {2, 3, 64, 4});
  uint8.inputs[0] = RandomCodes(DataType::kUint8, {1, 2, 3, 64}, 16);
  OpCase not_clean = WithLength(PagedCase("full_not_clean", {24, 24}, {1, 8, 32, 8}), 24);
  not_clean.attributes = {{"clean_logits", 0}};
  cases.Add(PagedByHand())
      .Add(PagedCase("h64_d128", {100, 33, 0, 64}, {1, 64, 128, 64}))
      .Add(PagedCase("next_n", {40, 2, 17}, {3, 32, 128, 16}))
      .Add(WithLength(PagedCase("wide_logits", {5, 41}, {1, 8, 48, 16}), 77))
      .Add(WithLength(PagedCase("narrow_logits", {5, 41}, {2, 8, 48, 16}), 41))
      .Add(PagedCase("block_of_one", {7, 12}, {2, 5, 40, 1}))
      .Add(PagedCase("many_queries", {90, 30}, {20, 2, 16, 8}))
      .Add(PagedCase("long", {2100}, {1, 2, 16, 64}))
      .Add(PagedCase("no_sequences", {}, {1, 2, 16, 8}))
      .Add(Packed(PagedCase("packed", {40, 2, 0, 17}, {1, 8, 48, 16}), {5, 1, 0, 17}))
      .Add(WithLength(Packed(PagedCase("packed_length", {9, 30}, {1, 3, 16, 4}), {0, 2}), 33))
      .Add(Plain(Packed(PagedCase("plain_packed", {90, 3, 33}, {1, 5, 24, 8}), {90, 1, 2}),
                 DataType::kFloat, DataType::kFloat))
      .Add(Plain(Packed(PagedCase("plain_bf16_keys", {20, 31}, {1, 4, 17, 16}), {1, 9}),
                 DataType::kFloat, DataType::kBfloat16))
      .Add(Plain(PagedCase("plain_float16", {20, 31}, {2, 4, 32, 16}), DataType::kFloat16,
                 DataType::kFloat16))
      .Add(PlainQueries(Packed(PagedCase("plain_queries", {90, 3, 33}, {1, 5, 24, 8}), {90, 1, 2}),
                        DataType::kFloat))
      .Add(PlainQueries(PagedCase("plain_queries_bf16", {20, 31}, {2, 4, 32, 16}),
                        DataType::kBfloat16))
      .Add(Packed4(
          PlainQueries(Packed(PagedCase("mxfp4_packed", {90, 3, 33}, {1, 5, 64, 8}), {90, 1, 2}),
                       DataType::kFloat)))
      .Add(
          Packed4(PlainQueries(PagedCase("mxfp4", {20, 31}, {2, 4, 128, 16}), DataType::kBfloat16)))
      .Rejects(
          Packed4(PlainQueries(PagedCase("mxfp4_part", {9}, {1, 4, 48, 16}), DataType::kFloat)),
          "input 0 \"q\"")
      // context_lens counts tokens: tables have room for them all.
      .Add(WithRatio(Plain(Packed(PagedCase("plain_ratio", {90, 3, 33}, {1, 5, 24, 8}), {90, 3, 2}),
                           DataType::kFloat, DataType::kFloat),
                     4))
      .Add(WithRatio(PagedCase("ratio", {41, 26}, {3, 2, 16, 8}), 8))
      .Add(flat_cache)
      .Add(uint8)
      .Add(not_clean)
      .Within(DataType::kFloat, {.rtol = 1e-5, .atol = 2e-3},
              "sums over the heads of float sums that cancel; logits reach some thousands");
  return AddRejectedPaged(cases);
}

namespace {

// Small whole numbers, so that every sum is exact and equal scores are equal in any order of sums.
Tensor WholeNumbers(DataType type, std::vector<int64_t> dims, int most, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(*ElementCount(dims));
  for (float& value : values)
    value = static_cast<float>(static_cast<int>(random() % (2 * most + 1)) - most);
  return As(type, Floats(std::move(dims), values));
}

// e4m3fn codes of whole numbers under scales of 1/2, 1 and 2.
Tensor WholeKeys(int64_t blocks, const PagedSizes& s) {
  Tensor cache = RandomCache(blocks, s);
  auto* bytes = static_cast<uint8_t*>(cache.mutable_data());
  const int64_t codes = s.block_size * s.head_size;
  for (int64_t b = 0; b < blocks; ++b) {
    const Tensor keys =
        WholeNumbers(DataType::kFloat8E4M3FN, {codes}, 2, static_cast<uint32_t>(34 + b));
    bytes = std::copy_n(static_cast<const uint8_t*>(keys.data()), codes, bytes);
    for (int64_t i = 0; i < s.block_size; ++i) {
      const float scale = i % 3 == 0 ? 0.5f : static_cast<float>(i % 3);
      std::memcpy(bytes, &scale, sizeof(scale));
      bytes += sizeof(scale);
    }
  }
  return cache;
}

struct Choice {
  std::string name;
  std::vector<int32_t> lengths;
  std::vector<int32_t> queries;  // of each sequence
  PagedSizes sizes;
  int64_t topk = 4;
  int64_t ratio = 1;
  DataType type = DataType::kFloat;  // of queries and keys
  int32_t skipped = 0;               // columns before the range
  int32_t behind = 0;                // columns of the range that a row does not see
};

// The columns that each row may choose among: those that it sees, but for the first `skipped`, and
// `behind` more.
OpCase ChoiceCase(const Choice& c) {
  OpCase result = Packed(PagedCase(c.name, c.lengths, c.sizes), c.queries);
  const std::vector<int64_t> q = result.inputs[0].dims(), cache = result.inputs[1].dims();
  const bool coded = c.type == DataType::kFloat8E4M3FN;
  result.inputs[0] = WholeNumbers(c.type, q, 2, 31);
  result.inputs[1] = coded ? WholeKeys(cache[0], c.sizes)
                           : WholeNumbers(c.type, {cache[0], cache[1], cache[3] - 4}, 2, 32);
  result.inputs[2] = WholeNumbers(DataType::kFloat, {q[0], q[1]}, 3, 33);
  std::vector<int32_t> begins, ends;
  for (size_t b = 0; b < c.lengths.size(); ++b) {
    for (int32_t i = 0; i < c.queries[b]; ++i) {
      const auto seen =
          std::max(c.lengths[b] - c.queries[b] + i + 1, 0) / static_cast<int32_t>(c.ratio);
      begins.push_back(std::min(c.skipped, seen));
      ends.push_back(seen + c.behind);
    }
  }
  const auto rows = static_cast<int64_t>(begins.size());
  result.inputs.push_back(Int32s({rows}, begins));
  result.inputs.push_back(Int32s({rows}, ends));
  result.attributes = {
      {"format", std::string(coded ? "fp8" : "bf16")}, {"topk", c.topk}, {"ratio", c.ratio}};
  return result;
}

}  // namespace

OpCases PagedIndexerTopKCases() {
  OpCases cases("pagefuse.PagedIndexerTopK");
  const OpCase good = ChoiceCase({"packed", {40, 2, 0, 17}, {5, 1, 0, 17}, {1, 8, 48, 16}});
  return cases.Add(good)
      .Add(ChoiceCase({"half", {90, 3, 33}, {90, 1, 2}, {1, 5, 24, 8}, 12, 1, DataType::kFloat16}))
      .Add(ChoiceCase(
          {"codes", {50, 3, 33}, {50, 1, 2}, {1, 18, 40, 8}, 12, 1, DataType::kFloat8E4M3FN}))
      .Add(ChoiceCase({"ratio", {90, 3, 33}, {90, 3, 2}, {1, 5, 24, 8}, 7, 4}))
      .Add(ChoiceCase({"one", {61}, {9}, {1, 1, 2, 4}, 1}))
      .Add(ChoiceCase({"more_than_there_are", {9, 5}, {3, 5}, {1, 2, 16, 4}, 50}))
      .Add(ChoiceCase({"none", {9}, {3}, {1, 2, 16, 4}, 0}))
      .Add(ChoiceCase({"ranges", {30, 20}, {4, 7}, {1, 3, 8, 4}, 6, 1, DataType::kFloat, 5, 2}))
      .Add(ChoiceCase({"no_tokens", {9}, {0}, {1, 2, 16, 4}}))
      .Add(ChoiceCase({"long", {5000}, {2}, {1, 2, 4, 64}, 300}))
      .Rejects(With(good, 8, Int32s({23}, std::vector<int32_t>(23, 49))),
               "input 8 \"ke\": expected")
      .Rejects(With(good, 7, Int32s({1}, {0})), "input 7 \"ks\": expected [rows] with rows = 23")
      .Rejects(With(good, 3, Int32s({4}, {50, 2, 0, 17})),
               "input 3 \"context_lens\": expected 0 to 48")
      .Rejects(With(good, 6, Int32s({5}, {0, 5, 6, 6, 22})),
               "input 6 \"query_start_loc\": expected 23 last, the number of query tokens, got 22");
}

OpCases MqaLogitsCases() {
  OpCases cases("pagefuse.MqaLogits");
  OpCase uint8 = RandomMqa("uint8", {3, 4, 64, 20});
  uint8.inputs[0] = RandomCodes(DataType::kUint8, {3, 4, 64}, 5);
  uint8.inputs[1] = RandomCodes(DataType::kUint8, {20, 64}, 6);
  OpCase every_code = RandomMqa("every_code", {2, 16, 128, 40});
  every_code.inputs[1] = RandomCodes(DataType::kFloat8E4M3FN, {40, 128}, 7);
  OpCase scale_column = RandomMqa("scale_column", {2, 8, 32, 17});
  scale_column.inputs[2] = Random(DataType::kFloat, {17, 1}, Uniform{0, 2}, 8);
  OpCase all_seen = RandomMqa("all_seen_not_clean", {1, 5, 48, 33});
  all_seen.attributes = {{"clean_logits", 0}};
  cases.Add(MqaByHand())
      .Add(RandomMqa("h64_d128", {3, 64, 128, 75}))
      .Add(RandomMqa("many_rows", {70, 4, 32, 40}))
      .Add(RandomMqa("odd_sizes", {2, 37, 70, 19}))
      .Add(RandomMqa("more_heads_than_a_step", {2, 83, 128, 35}))
      .Add(RandomMqa("pieces", {2, 1, 16, 1100}))
      .Add(Scaled(RandomMqa("signed_scales", {2, 8, 40, 50}), -1, 1))
      .Add(uint8)
      .Add(every_code)
      .Add(scale_column)
      .Add(all_seen)
      .Add(RandomMqa("no_rows", {0, 4, 16, 8}))
      .Add(RandomMqa("no_keys", {2, 4, 16, 0}))
      .Within(DataType::kFloat, {.rtol = 1e-5, .atol = 2e-3},
              "sums over the heads of float sums that cancel; logits reach some thousands");
  return AddRejected(cases);
}

}  // namespace pagefuse::pagefuse_ops
