// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/plugin/loader/custom_ops_plugin.h"

#include <filesystem>
#include <string_view>

#include <dlfcn.h>

#include "absl/strings/strip.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/plugin/custom_ops/library.h"
#include "pagefuse/plugin/loader/native_plugin.h"

namespace pagefuse {
namespace {

constexpr std::string_view kNativeSymbol = "pagefuse_plugin";

// "third_party" of "/a/libthird_party.so".
std::string NameOf(const std::string& file) {
  const std::string stem = std::filesystem::path(file).stem().string();
  return std::string(absl::StripPrefix(stem, "lib"));
}

}  // namespace

bool IsCustomOpsPlugin(const ElfFile& object) {
  return object.Defines(kRegisterCustomOps) && !object.Defines(kNativeSymbol);
}

absl::StatusOr<PluginContents> ReadCustomOpsPlugin(const std::string& file) {
  // Stays loaded: its ops refer to it.
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* register_ops = library == nullptr ? nullptr : dlsym(library, kRegisterCustomOps);
  if (register_ops == nullptr) return LoaderError(file);
  PluginContents contents;
  contents.name = NameOf(file);
  contents.kind = "custom ops for ONNX Runtime";
  PF_ASSIGN_OR_RETURN(contents.ops,
                      HostedOps(register_ops, std::filesystem::path(file).filename().string()));
  for (const OpDef& op : contents.ops) {
    if (!op.domain().empty()) continue;
    return absl::InvalidArgumentError(
        StrCat("op ", op.name(), ": is in ONNX's own domain, expected one of its own"));
  }
  return contents;
}

}  // namespace pagefuse
