// SPDX-License-Identifier: Apache-2.0
// What a graph ends in, as tests of forms compare it.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/model.h"

namespace pagefuse {

// What the default pipeline makes of a copy of a model.
struct Ending {
  // The fused ops, how many of each. Chains of elementwise ops are left out: they are as many as
  // there are other ops between.
  std::map<std::string, int> ops;
  std::string why_not_paged;  // empty if it is
};

absl::StatusOr<Ending> EndOf(const Model& plain);
// Its fused ops alone.
absl::StatusOr<std::map<std::string, int>> FusedOps(const Model& plain);

}  // namespace pagefuse
