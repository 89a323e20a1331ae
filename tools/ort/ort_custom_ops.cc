// SPDX-License-Identifier: Apache-2.0
#include "tools/ort/ort_custom_ops.h"

#include <filesystem>

#include <dlfcn.h>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse::tools {

absl::StatusOr<std::string> CopyOfLibrary(const std::string& path, const TemporaryFolder& folder) {
  const std::filesystem::path copy = folder.path() / std::filesystem::path(path).filename();
  std::error_code error;
  std::filesystem::copy_file(path, copy, error);
  if (!error) return copy.string();
  return absl::InvalidArgumentError(StrCat("no copy of ", path, ": ", error.message()));
}

absl::StatusOr<RegisteredOps> LookAtCustomOps(const std::string& path,
                                              const std::map<std::string, std::string>& config) {
  const TemporaryFolder folder;
  PF_ASSIGN_OR_RETURN(const std::string copy, CopyOfLibrary(path, folder));
  // Stays loaded, as it does where it is registered.
  void* const handle = dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return absl::InvalidArgumentError(dlerror());
  void* const register_ops = dlsym(handle, kRegisterCustomOps);
  if (register_ops != nullptr) return LookAtOps(register_ops, config);
  return absl::NotFoundError(StrCat(path, ": registers no ops for ONNX Runtime"));
}

}  // namespace pagefuse::tools
