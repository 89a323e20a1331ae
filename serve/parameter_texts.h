// SPDX-License-Identifier: Apache-2.0
// Arguments of calls that are written one parameter after the other, and not as JSON, as grammars.
#pragma once

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

#include "pagefuse/text/answer/tool_format.h"
#include "pagefuse/text/grammar/grammar.h"

namespace pagefuse::serve {

// Those that a schema of an object allows: what it requires, then any of the others, each in the schema's order, and no more.
// InvalidArgument with the pointer of what the format cannot say.
absl::StatusOr<Grammar::Ptr> ParametersGrammar(const ParameterText& text,
                                               const nlohmann::ordered_json& schema);

// Any, by names of letters, digits, "_" and "-".
absl::StatusOr<Grammar::Ptr> AnyParametersGrammar(const ParameterText& text);

}  // namespace pagefuse::serve
