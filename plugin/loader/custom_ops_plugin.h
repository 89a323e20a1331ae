// SPDX-License-Identifier: Apache-2.0
// Plug-ins that were written for ONNX Runtime: shared objects with the function RegisterCustomOps
// (plugin/custom_ops), and without pagefuse_plugin.
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "pagefuse/plugin/loader/elf_file.h"
#include "pagefuse/plugin/loader/plugin_contents.h"

namespace pagefuse {

bool IsCustomOpsPlugin(const ElfFile& object);

// Loads the object and asks for its ops. `file`: absolute. An error as dlopen and the library say it.
absl::StatusOr<PluginContents> ReadCustomOpsPlugin(const std::string& file);

}  // namespace pagefuse
