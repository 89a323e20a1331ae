// SPDX-License-Identifier: Apache-2.0
// Answers that call tools, as grammars: the texts of a format (CallText) around names and arguments.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

#include "pagefuse/text/answer/tool_format.h"
#include "pagefuse/text/grammar/grammar.h"

namespace pagefuse::serve {

struct ToolRules {
  std::string name;
  nlohmann::ordered_json parameters;  // a schema of an object; null: no arguments
  bool any_arguments = false;         // any object, whatever the schema says
};

// Whether calls of the tool can be held to its schema.
bool BindsArguments(const ToolFormat& format, const ToolRules& tool);

// Calls of these tools, one or, if `several`, one or more, and nothing else. InvalidArgument with the pointer of
// what the format or the grammar cannot say.
absl::StatusOr<Grammar::Ptr> CallsGrammar(const ToolFormat& format,
                                          std::span<const ToolRules> tools, bool several);

// Any text, and where the format's opening mark comes, calls behind it; null where calls have no such mark.
absl::StatusOr<Grammar::Ptr> TextOrCallsGrammar(const ToolFormat& format,
                                                std::span<const ToolRules> tools, bool several);

}  // namespace pagefuse::serve
