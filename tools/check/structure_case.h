// SPDX-License-Identifier: Apache-2.0
// Checks models that have no reference data: they must load, have known ops only, and tell the
// shapes of all values.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace pagefuse {

// Loads, verifies ops and infers; every value must then have a type and known dims. Unimplemented
// for an op that is not known, InvalidArgument naming a value that is not.
absl::Status CheckStructure(const std::string& folder);

}  // namespace pagefuse
