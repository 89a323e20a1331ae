// SPDX-License-Identifier: Apache-2.0
// Says of a status where it arose.
#pragma once

#include <string_view>

#include "absl/status/status.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse {

// The status with "<place>: " before its message; OK stays.
inline absl::Status AtPlace(std::string_view place, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), StrCat(place, ": ", StdView(status.message())));
}

// The same of a file, whose path stands in quotes.
inline absl::Status InFile(std::string_view path, const absl::Status& status) {
  return AtPlace(StrCat("\"", path, "\""), status);
}

}  // namespace pagefuse
