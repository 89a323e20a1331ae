// Writes what commands output: JSON and folders (files: base/new_file.h).
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"

namespace pagefuse::tools {

// The JSON as text, on one line unless `indent` is 0 or more. Names in models are bytes of any
// kind: what is no UTF-8 comes out as U+FFFD, since JSON can hold nothing else.
std::string JsonText(const nlohmann::ordered_json& json, int indent = -1);

// Makes the folder, those above it too; fine if it is there. InvalidArgument with the path
// and the system's reason.
absl::Status MakeFolder(const std::string& path);

}  // namespace pagefuse::tools
