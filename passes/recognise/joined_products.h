// SPDX-License-Identifier: Apache-2.0
// Merges scores that are computed from two parts of the same rows.
#pragma once

#include "pagefuse/ops/infer/infer.h"

namespace pagefuse {

// a . k[:m] + b . k[m:]  =>  [a, b] . k, where `add` is such a sum: one product of queries and rows.
// False if it is none, or if the parts of the rows do not follow each other in one tensor.
bool JoinProducts(Graph& graph, Node* add, const SymbolicContents& contents);

}  // namespace pagefuse
