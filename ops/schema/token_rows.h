// SPDX-License-Identifier: Apache-2.0
// Products whose tokens that are read and those that are written have different arithmetic.
#pragma once

#include "pagefuse/ops/kernels/linalg/linear_bf16.h"
#include "pagefuse/ops/kernels/linalg/matrix.h"
#include "pagefuse/ops/schema/kernel.h"

namespace pagefuse {

// True if the rows of input `port` are the tokens of a paged graph's step, by its declared shape:
// [num_tokens, K], with sizes of 1 before it.
bool RowsAreTokens(const KernelQuery& query, int port);

// Calls product(x, y, read) for all rows of x: `read` for those that are to be computed as
// LinearCodesBf16 does, which are tokens that are read, where the machine is faster so.
template <typename ProductFn>
void ByTokenRows(const KernelArgs& args, bool rows_are_tokens, const RowsView& x,
                 const OutputView& y, const ProductFn& product) {
  const bool splits = rows_are_tokens && args.tokens != nullptr && ReadsCodesAsBf16() &&
                      args.tokens->count() == x.m;
  if (!splits) return product(x, y, /*read=*/false);
  for (const TokenRows::Run& run : args.tokens->runs) {
    product({x.data + run.begin * x.stride, run.end - run.begin, x.stride},
            {y.data + run.begin * y.stride, y.stride}, run.read);
  }
}

}  // namespace pagefuse
