// SPDX-License-Identifier: Apache-2.0
// Loads libraries of custom ops that were written for ONNX Runtime and know nothing of pagefuse.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse {

// The function that such a library exports.
inline constexpr char kRegisterCustomOps[] = "RegisterCustomOps";

// The ops that a library registers, sorted by domain and name. `register_ops`: the address of its
// function kRegisterCustomOps. The library stays loaded as long as the ops are there. `library`: its
// name in errors and among kernels. An error in one sentence, ours or the library's.
absl::StatusOr<std::vector<OpDef>> HostedOps(void* register_ops, const std::string& library);

// What is registered, as a list.
struct RegisteredOps {
  std::map<std::string, std::set<std::string>> names;  // of ops, by domain
  int rows = 0;  // an op has a row for each combination of types, in each domain
};

// Registers the library with nobody. `config`: entries of the session's configuration.
absl::StatusOr<RegisteredOps> LookAtOps(void* register_ops,
                                        const std::map<std::string, std::string>& config);

}  // namespace pagefuse
