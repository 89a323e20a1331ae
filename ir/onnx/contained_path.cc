// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ir/onnx/contained_path.h"

#include <algorithm>
#include <string_view>
#include <system_error>

#include "absl/status/status.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

namespace fs = std::filesystem;

absl::Status CheckLocation(const std::string& location) {
  auto refuse = [&location](std::string_view reason) {
    return absl::InvalidArgumentError(StrCat("location \"", location, "\" ", reason));
  };
  if (location.empty()) return refuse("is empty");
  if (location.find('\0') != std::string::npos) return refuse("contains a zero byte");
  const fs::path path(location);
  if (path.is_absolute()) return refuse("is absolute");
  // Each part of it lies in the folder, so that nothing outside is looked at on the way.
  int64_t depth = 0;
  for (const fs::path& part : path) {
    if (part == "..") {
      --depth;
    } else if (!part.empty() && part != ".") {
      ++depth;
    }
    if (depth < 0) return refuse("leaves the folder of the model");
  }
  return absl::OkStatus();
}

bool IsInside(const fs::path& path, const fs::path& folder) {
  const auto [end, rest] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return end == folder.end();
}

// The repository of a download cache that a model's folder is part of:
// REPOSITORY/snapshots/REVISION holds links to REPOSITORY/blobs/HASH. Empty if the folder is in
// none.
fs::path RepositoryAround(const fs::path& folder) {
  std::error_code error;
  for (fs::path inner = folder; inner.has_relative_path(); inner = inner.parent_path()) {
    const fs::path snapshots = inner.parent_path();
    const fs::path repository = snapshots.parent_path();
    if (snapshots.filename() == "snapshots" && repository.has_relative_path() &&
        fs::is_directory(repository / "blobs", error)) {
      return repository;
    }
  }
  return {};
}

}  // namespace

absl::StatusOr<fs::path> ContainedPath(const std::string& folder, const std::string& location) {
  PF_RETURN_IF_ERROR(CheckLocation(location));
  std::error_code error;
  const fs::path base = fs::canonical(folder, error);
  if (error) return absl::NotFoundError(StrCat("folder \"", folder, "\": ", error.message()));
  const fs::path path = fs::canonical(base / location, error);
  if (error) return absl::NotFoundError(StrCat("\"", location, "\": ", error.message()));
  const fs::path repository = RepositoryAround(base);
  if (IsInside(path, repository.empty() ? base : repository)) return path;
  return absl::InvalidArgumentError(StrCat("location \"", location, "\" is a link that leaves the ",
                                           repository.empty() ? "folder" : "repository",
                                           " of the model"));
}

}  // namespace pagefuse
