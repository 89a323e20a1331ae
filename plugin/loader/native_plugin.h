// SPDX-License-Identifier: Apache-2.0
// Plug-ins that are shared objects with the symbol `pagefuse_plugin` (pagefuse/plugin.h).
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "pagefuse/plugin/loader/elf_file.h"
#include "pagefuse/plugin/loader/plugin_contents.h"

namespace pagefuse {

// Checks what the object says of itself, loads it and asks what it has. `path`: for messages; `file`:
// absolute. InvalidArgument, with none of its code run, for an object without the symbol or of another
// ABI; as dlopen and the plug-in say it for others.
absl::StatusOr<PluginContents> ReadNativePlugin(const std::string& path, const std::string& file,
                                                const ElfFile& object);

// What dlopen or dlsym said last: "undefined symbol: x" of "/a/b.so: undefined symbol: x".
absl::Status LoaderError(const std::string& file);

}  // namespace pagefuse
