// SPDX-License-Identifier: Apache-2.0
// TopKSlots, ReqIndexToSlot and CombineTopKWindow: integer maps, compared exactly.
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "op_test.h"

namespace pagefuse::pagefuse_ops {
namespace {

Tensor RandomInt32s(std::vector<int64_t> dims, int32_t least, int32_t most, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int32_t> uniform(least, most);
  std::vector<int32_t> values(*ElementCount(dims));
  for (int32_t& value : values) value = uniform(random);
  return Int32s(std::move(dims), values);
}

constexpr int32_t kMaxInt32 = 2147483647;

// --- TopKSlots ---

// `tokens` tokens of three requests with random indices into tables of random blocks.
OpCase RandomTopKSlots(int64_t tokens, int64_t k, int32_t block_size) {
  constexpr int32_t kColumns = 5;
  std::vector<bool> valid(tokens);
  for (int64_t t = 0; t < tokens; ++t) valid[t] = t % 4 != 2;
  return {.name = "random_" + std::to_string(k) + "_bs" + std::to_string(block_size),
          .inputs = {RandomInt32s({tokens, k}, -2, kColumns * block_size - 1, 1),
                     RandomInt32s({tokens}, 0, 2, 2), RandomInt32s({3, kColumns}, 0, 99, 3),
                     Bools({tokens}, valid)},
          .attributes = {{"block_size", int64_t{block_size}}}};
}

// Two requests with tables [7, 3] and [5, -1]; the third token is padding with an index past its
// table.
OpCase TopKSlotsByHand() {
  return {
      .name = "by_hand",
      .inputs = {Int32s({3, 4}, {5, 0, 3, -1, 2, -1, -1, -1, 9, 1, 0, -1}), Int32s({3}, {0, 1, 0}),
                 Int32s({2, 2}, {7, 3, 5, -1}), Bools({3}, {true, true, false})},
      .attributes = {{"block_size", 4}},
      .outputs = {Int32s({3, 4}, {13, 28, 31, -1, 22, -1, -1, -1, -1, -1, -1, -1}),
                  Int32s({3}, {3, 1, 0})}};
}

// --- ReqIndexToSlot ---

OpCase RandomReqIndexToSlot(int64_t tokens, int64_t k, int32_t block_size, bool workspace) {
  constexpr int32_t kColumns = 4;
  OpCase op_case = {
      .name = "random_" + std::to_string(k) + "_bs" + std::to_string(block_size),
      .inputs = {RandomInt32s({tokens}, 0, 2, 4), RandomInt32s({3, kColumns}, 0, 99, 5),
                 RandomInt32s({tokens, k}, -2, (kColumns + 1) * block_size, 6)},
      .attributes = {{"block_size", int64_t{block_size}}}};
  if (!workspace) return op_case;
  op_case.name += "_workspace";
  op_case.inputs.push_back(RandomInt32s({tokens}, -1, 1, 7));
  op_case.inputs.push_back(Int32s({2}, {0, 1000}));
  return op_case;
}

// A decode token with a table, and a prefill token whose table holds no block.
OpCase ReqIndexToSlotByHand() {
  return {.name = "by_hand",
          .inputs = {Int32s({2}, {1, 0}), Int32s({2, 2}, {-1, -1, 5, 9}),
                     Int32s({2, 4}, {0, 7, 8, -3, 0, 7, 8, -1}), Int32s({2}, {-1, 1}),
                     Int32s({2}, {0, 10})},
          .attributes = {{"block_size", 4}},
          .outputs = {Int32s({2, 4}, {20, 39, -1, -1, 10, 17, -1, -1}), Int32s({2}, {2, 2})}};
}

// --- CombineTopKWindow ---

struct CombineSizes {
  int64_t window, ratio, topk, workspace_rows, window_offset;
};

OpCase CombineCase(std::string name, const std::vector<int32_t>& query_lens,
                   const std::vector<int32_t>& seq_lens, const CombineSizes& sizes) {
  const int64_t requests = static_cast<int64_t>(seq_lens.size());
  std::vector<int32_t> starts = {3};  // the first start is subtracted
  std::vector<int32_t> gather_lens;
  for (int64_t r = 0; r < requests; ++r) {
    starts.push_back(starts.back() + query_lens[r]);
    const int64_t before = seq_lens[r] - query_lens[r];
    gather_lens.push_back(static_cast<int32_t>(
        query_lens[r] + std::min(before, std::max(sizes.window - 1, int64_t{0}))));
  }
  const int64_t tokens = starts.back() - 3;
  return {
      .name = std::move(name),
      .inputs = {RandomInt32s({tokens, sizes.topk + 1}, 0, 500, 8), Int32s({requests + 1}, starts),
                 Int32s({requests}, seq_lens), Int32s({requests}, gather_lens),
                 Ints({}, {sizes.workspace_rows}), Ints({}, {sizes.window_offset})},
      .attributes = {
          {"window_size", sizes.window}, {"compress_ratio", sizes.ratio}, {"topk", sizes.topk}}};
}

// Window 3, ratio 2, two tokens at positions 4 and 5 of six: three rows of the window each, and 2
// and 3 compressed rows of which topk keeps 2.
OpCase CombineByHand() {
  std::vector<int32_t> combined(2 * 128, -1);
  const std::vector<std::vector<int32_t>> rows = {{8, 1, 20, 21, 22}, {4, 6, 21, 22, 23}};
  for (int t = 0; t < 2; ++t) std::copy(rows[t].begin(), rows[t].end(), &combined[t * 128]);
  return {.name = "by_hand",
          .inputs = {Int32s({2, 3}, {8, 1, 0, 4, 6, 9}), Int32s({2}, {0, 2}), Int32s({1}, {6}),
                     Int32s({1}, {4}), Ints({}, {100}), Ints({}, {20})},
          .attributes = {{"window_size", 3}, {"compress_ratio", 2}, {"topk", 2}},
          .outputs = {Int32s({2, 128}, combined), Int32s({2}, {5, 5})}};
}

}  // namespace

OpCases TopKSlotsCases() {
  const OpCase good = TopKSlotsByHand();
  return OpCases("pagefuse.TopKSlots")
      .Add(good)
      .Add(RandomTopKSlots(7, 33, 16))
      .Add(RandomTopKSlots(5, 128, 64))
      .Add(RandomTopKSlots(4, 50, 7))
      .Add(RandomTopKSlots(3, 19, 1))
      .Add({.name = "empty",
            .inputs = {Int32s({0, 4}, {}), Int32s({0}, {}), Int32s({2, 2}, {7, 3, 5, -1}),
                       Bools({0}, {})},
            .attributes = good.attributes})
      .Rejects(With(good, 1, Int32s({3}, {0, 2, 0})),
               "input 1 \"token_to_req\": expected requests in [0, 2)")
      .Rejects(With(good, 0, Int32s({3, 1}, {8, 0, 0})),
               "input 0 \"topk_indices\": expected indices below 8")
      .Rejects(With(good, 0, Int32s({3, 1}, {0, 4, 0})),
               "input 2 \"block_table\": block -1 at [1, 1] is used but is no block")
      .Rejects(With(good, 2, Int32s({2, 2}, {7, 536870912, 5, 0})),
               "input 2 \"block_table\": block 536870912 at [0, 1] gives slot 2147483649")
      .Rejects(With(good, 3, Bools({2}, {true, true})),
               "input 3 \"is_valid\": expected [T] with T = 3 of \"topk_indices\", got [2]")
      .Rejects(WithAttribute(good, "block_size", 0), "attribute \"block_size\": expected 1 to");
}

OpCases ReqIndexToSlotCases() {
  const OpCase good = ReqIndexToSlotByHand();
  OpCase no_starts = good;
  no_starts.inputs.pop_back();
  return OpCases("pagefuse.ReqIndexToSlot")
      .Add(good)
      .Add(RandomReqIndexToSlot(6, 130, 64, true))
      .Add(RandomReqIndexToSlot(6, 37, 16, false))
      .Add(RandomReqIndexToSlot(3, 21, 3, true))
      .Rejects(no_starts, "input 4 \"workspace_starts\": is missing")
      .Rejects(With(good, 3, Tensor()), "input 3 \"prefill_request_id\": is missing")
      .Rejects(With(good, 3, Int32s({2}, {-1, 2})),
               "input 3 \"prefill_request_id\": expected requests below 2")
      .Rejects(With(good, 4, Int32s({2}, {0, -1})),
               "input 4 \"workspace_starts\": expected 0 or more, got -1 at 1")
      .Rejects(With(good, 4, Int32s({2}, {0, kMaxInt32})),
               "input 4 \"workspace_starts\": start 2147483647 and index 7 give a row beyond int32")
      .Rejects(With(good, 0, Int32s({2}, {0, 0})),
               "input 1 \"block_table\": block -1 at [0, 0] is used but is no block")
      .Rejects(With(good, 0, Int32s({2}, {-1, 0})),
               "input 0 \"req_id\": expected requests in [0, 2)")
      .Rejects(WithAttribute(good, "block_size", -4), "attribute \"block_size\": expected 1 to");
}

OpCases CombineTopKWindowCases() {
  const OpCase good = CombineByHand();
  return OpCases("pagefuse.CombineTopKWindow")
      .Add(good)
      .Add(CombineCase("two_requests", {7, 5}, {7, 30}, {8, 4, 16, 40, 12}))
      .Add(CombineCase("wide", {3, 0, 4}, {300, 9, 290}, {128, 128, 70, 400, 3}))
      .Add(CombineCase("window_only", {5, 2}, {5, 20}, {13, 1, 0, 40, 0}))
      .Add(CombineCase("compressed_only", {3}, {9}, {0, 2, 6, 40, 4}))
      .Add(CombineCase("no_tokens", {0}, {9}, {4, 2, 6, 40, 4}))
      .Rejects(With(good, 1, Int32s({2}, {0, 3})),
               "input 1 \"query_start_loc\": expected 2 tokens, as \"topk_indices\" has, got 3")
      .Rejects(With(good, 1, Int32s({3}, {0, 1, 2})),
               "input 1 \"query_start_loc\": expected [Q + 1] with Q = 1 of \"seq_lens\", got [3]")
      .Rejects(With(good, 1, Int32s({2}, {2, 0})),
               "input 1 \"query_start_loc\": falls from 2 to 0 at request 0")
      .Rejects(With(good, 2, Int32s({1}, {1})),
               "input 2 \"seq_lens\": expected at least the 2 query tokens of request 0, got 1")
      .Rejects(With(good, 3, Int32s({1}, {3})), "input 3 \"gather_lens\": expected 4 to 6")
      .Rejects(With(good, 3, Int32s({1}, {7})), "input 3 \"gather_lens\": expected 4 to 6")
      .Rejects(With(good, 0, Int32s({2, 1}, {8, 4})),
               "input 0 \"topk_indices\": expected at least 2 columns for request 0, got 1")
      .Rejects(With(good, 5, Ints({}, {-1})), "input 5 \"window_offset\": expected 0 to")
      .Rejects(With(good, 5, Ints({}, {kMaxInt32 - 1})),
               "input 4 \"workspace_rows\": token 0 gets workspace row 2147483648, beyond int32")
      .Rejects(WithAttribute(good, "compress_ratio", 0),
               "attribute \"compress_ratio\": expected 1 to")
      .Rejects(WithAttribute(good, "window_size", -1), "attribute \"window_size\": expected 0 to");
}

}  // namespace pagefuse::pagefuse_ops
