// SPDX-License-Identifier: Apache-2.0
// Writes what commands output: JSON and folders (files: base/new_file.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"

namespace pagefuse::tools {

// The JSON as text, on one line unless `indent` is 0 or more. Names in models are bytes of any
// kind: what is no UTF-8 comes out as U+FFFD, since JSON can hold nothing else.
std::string JsonText(const nlohmann::ordered_json& json, int indent = -1);

// What a command found, as docs/results.schema.json describes it: the command, the version and the
// models that were given, and behind them what `found`, an object, has.
nlohmann::ordered_json JsonResult(const std::string& command,
                                  const std::vector<std::string>& models,
                                  const nlohmann::ordered_json& found);

// The text for the error stream, dim where that is a terminal which shows it so (NO_COLOR, TERM).
std::string Dimmed(const std::string& text);

// Whether the error stream is a terminal.
bool ErrorsAreOnTerminal();

// Makes the folder, those above it too; fine if it is there. InvalidArgument with the path
// and the system's reason.
absl::Status MakeFolder(const std::string& path);

}  // namespace pagefuse::tools
