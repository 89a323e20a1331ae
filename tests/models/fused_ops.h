// What a graph ends in, as tests of spellings compare it.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"

#include "pagefuse/ir/model.h"

namespace pagefuse {

// The fused ops that the default pipeline leaves in a copy of the model, how many of each. Chains of
// elementwise ops are left out: they are as many as there are other ops between.
absl::StatusOr<std::map<std::string, int>> FusedOps(const Model& plain);

}  // namespace pagefuse
