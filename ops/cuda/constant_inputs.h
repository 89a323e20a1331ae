// SPDX-License-Identifier: Apache-2.0
// Which inputs a kernel may read before the one in front of it has ended.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "pagefuse/ir/graph/graph.h"

namespace pagefuse::cuda {

// Whether nothing writes these inputs while a session runs; one that is not there is not written.
inline bool AreConstant(const Node& node, std::initializer_list<int> inputs) {
  return std::all_of(inputs.begin(), inputs.end(), [&](int i) {
    return node.input(i) == nullptr || node.input(i)->IsConstant();
  });
}

}  // namespace pagefuse::cuda
