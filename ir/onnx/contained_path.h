// SPDX-License-Identifier: Apache-2.0
// Resolves paths that files name, and accepts them only where they stay inside the folder.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/statusor.h"

namespace pagefuse {

// The real path of `location` in `folder`. InvalidArgument for a location that is empty, absolute or
// leaves the folder by `..`, on the way even, or by a link; but a link may lead anywhere in the repository of a
// download cache that the folder is part of: where it lies under `R/snapshots` and `R/blobs` is a
// folder too. NotFound for what is not there.
absl::StatusOr<std::filesystem::path> ContainedPath(const std::string& folder,
                                                    const std::string& location);

}  // namespace pagefuse
