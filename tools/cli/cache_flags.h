// SPDX-License-Identifier: Apache-2.0
// The options of the paged cache that several commands take.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "tools/cli/command_line.h"

namespace pagefuse::tools {

struct CacheFlags {
  std::optional<std::string> format, skip_layers, index_format;
  std::string scales;  // a file

  bool wanted() const { return format || skip_layers || index_format || !scales.empty(); }
};

// Adds --kv-cache, --kv-cache-skip-layers, --kv-cache-scales and --indexer-cache, and returns them.
std::vector<Option> AddCacheFlags(Command command, CacheFlags& flags);

// Adds --check-paging.
Option AddCheckPagingFlag(Command command, std::string& when);

// Writes what the flags say into options of passes. InvalidArgument if a flag says nothing without
// another, or if the file is none that `calibrate` writes.
absl::Status ReadCacheFlags(const CacheFlags& flags, std::map<std::string, std::string>& options);

}  // namespace pagefuse::tools
