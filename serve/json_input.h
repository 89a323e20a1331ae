// SPDX-License-Identifier: Apache-2.0
// Reads JSON that strangers sent, within bounds that hold while it is read.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace pagefuse::serve {

struct JsonLimits {
  size_t depth = 64;
  size_t values = 100'000;  // names and values
};

// InvalidArgument naming line and column for what is no JSON, for text that is no UTF-8, for a name that an
// object has twice, and past the limits.
absl::StatusOr<nlohmann::ordered_json> ParseJson(std::string_view text,
                                                 const JsonLimits& limits = {});

}  // namespace pagefuse::serve
