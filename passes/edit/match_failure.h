// SPDX-License-Identifier: Apache-2.0
// Makes the status by which a pass says why it leaves something as it is, worded the same way
// everywhere.
#pragma once

#include <type_traits>

#include "absl/status/status.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/graph/graph.h"

namespace pagefuse {

// A part of a message: values are told by their names, nodes by what they are called.
template <typename Part>
decltype(auto) Told(const Part& part) {
  if constexpr (std::is_same_v<Part, Value>) {
    return StrCat("\"", part.name(), "\"");
  } else if constexpr (std::is_same_v<Part, Node>) {
    return part.Description();
  } else {
    return (part);
  }
}

// FailedPrecondition with these parts as its message.
template <typename... Parts>
absl::Status MatchFailure(const Parts&... parts) {
  return absl::FailedPreconditionError(StrCat(Told(parts)...));
}

}  // namespace pagefuse
