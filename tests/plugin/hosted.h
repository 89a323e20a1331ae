// SPDX-License-Identifier: Apache-2.0
// Libraries of custom ops, and graphs that call them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse {

// The ops of a library, which stays loaded. `path` ends in what errors call it.
absl::StatusOr<std::vector<OpDef>> OpsOfLibrary(const std::string& path);

// All of the process may call them from now on.
absl::Status Publish(const std::vector<OpDef>& ops);

// A graph of the domains "third.party...".
Model ThirdPartyModel(const std::string& ports, const std::string& body);

// Runs it in a session of two threads, as it is.
absl::StatusOr<std::vector<Tensor>> RunModel(Model model,
                                             const std::map<std::string, Tensor>& feeds);

std::vector<float> Floats(const Tensor& tensor);

}  // namespace pagefuse
