// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/pagefuse/packed_batch_text.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse::pagefuse_ops {

void WriteTokenPositions(BodyWriter& w, std::string_view tokens, TokensOf of) {
  w.Comment("which sequence owns each token, and the token's absolute position");
  w.Set("n_tokens1", StrCat("Shape <start = 0, end = 1> (", tokens, ")"));
  w.Int(0), w.Int(1), w.Ints({0}), w.Ints({1}), w.Ints({2147483647});
  w.Set("n_tokens", "Squeeze (n_tokens1)");
  w.Set("token", "Range (i_0, n_tokens, i_1)");
  if (of == TokensOf::kStarts) {
    w.Set("starts", "Cast <to = 7> (query_start_loc)");
  } else {
    w.Set("starts", StrCat("Range (i_0, ", w.Add("Add (n_tokens, i_1)"), ", i_1)"));
  }
  w.Set("ends", "Slice (starts, l_1, l_2147483647, l_0)");
  w.Set("token1", "Unsqueeze (token, l_1)");
  w.Set("ends1", "Unsqueeze (ends, l_0)");
  w.Set("past", "GreaterOrEqual (token1, ends1)");
  w.Set("past_count", "Cast <to = 7> (past)");
  w.Set("seq", "ReduceSum <keepdims = 0> (past_count, l_1)");
  w.Set("lens", "Cast <to = 7> (seq_lens)");
  w.Set("len", "Gather <axis = 0> (lens, seq)");
  w.Set("end", "Gather <axis = 0> (ends, seq)");
  w.Set("to_end", "Sub (end, token)");
  w.Set("pos", "Sub (len, to_end)");
  w.Set("start", "Gather <axis = 0> (starts, seq)");
  w.Set("qidx", "Sub (token, start)");
  w.Set("rows", "Gather <axis = 0> (block_table, seq)");
}

}  // namespace pagefuse::pagefuse_ops
