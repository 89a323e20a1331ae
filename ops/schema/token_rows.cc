// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/schema/token_rows.h"

namespace pagefuse {
namespace {

constexpr char kTokens[] = "num_tokens";  // the dim of a paged graph's inputs

}  // namespace

bool RowsAreTokens(const KernelQuery& query, int port) {
  const Value* x = query.node->input(port);
  if (x == nullptr || !x->shape() || x->shape()->rank() < 2) return false;
  const Shape& shape = *x->shape();
  for (int d = 0; d < shape.rank() - 2; ++d) {
    if (shape[d].constant() != 1) return false;
  }
  return ProvablyEqual(shape[shape.rank() - 2], Dim::Symbol(kTokens));
}

}  // namespace pagefuse
