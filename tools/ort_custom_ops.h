// What a library of custom ops for ONNX Runtime has in it.
#pragma once

#include <map>
#include <set>
#include <string>

#include "absl/status/statusor.h"

namespace pagefuse::tools {

struct CustomOps {
  std::map<std::string, std::set<std::string>> names;  // of ops, by domain
  int rows = 0;  // an op has a row for each combination of types, in each domain
};

// Registers the library that `handle` is of (dlopen) with nobody, and looks at what it brings.
// `config`: entries of the session's configuration. NotFound if it has no ops to register.
absl::StatusOr<CustomOps> LookAtCustomOps(void* handle,
                                          const std::map<std::string, std::string>& config);

}  // namespace pagefuse::tools
