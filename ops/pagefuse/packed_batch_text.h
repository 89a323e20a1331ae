// SPDX-License-Identifier: Apache-2.0
// A batch of packed tokens in the text of a decomposition.
#pragma once

#include <string_view>

#include "pagefuse/ops/pagefuse/body_writer.h"

namespace pagefuse::pagefuse_ops {

// What says which tokens a sequence has: the port query_start_loc, or there is one of each.
enum class TokensOf { kStarts, kOneEach };

// For the ports query_start_loc, seq_lens and block_table, and tokens that are the first axis of
// `tokens`; one number a token, int64: `seq` its sequence, `len` that sequence's length, `pos` its
// position in it, `qidx` its number among the sequence's tokens; `rows` [T, M] the sequence's row
// of the block table. Also the names n_tokens, n_tokens1 ([1]), i_0, i_1, l_0, l_1.
void WriteTokenPositions(BodyWriter& w, std::string_view tokens, TokensOf of = TokensOf::kStarts);

}  // namespace pagefuse::pagefuse_ops
