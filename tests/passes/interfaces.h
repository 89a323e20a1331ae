// SPDX-License-Identifier: Apache-2.0
// The same graphs given their inputs otherwise: rows without heads, heads first, a batch of one,
// 32-bit indices, two rows in one. What produces a query or a key decides how it comes.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "fusion_case.h"

namespace pagefuse {

struct Interface {
  std::string_view name;
  // Changes inputs of the graph and what they are fed; false if there are none to change.
  bool (*change)(Model& model, std::vector<Feeds>& feeds);
};

std::span<const Interface> Interfaces();

}  // namespace pagefuse
