// Filters of chat templates, by name.
#pragma once

#include <map>
#include <string_view>

#include "absl/status/statusor.h"

#include "pagefuse/text/template/template_eval.h"

namespace pagefuse::chat_template {

using Filter = absl::StatusOr<Value> (*)(Evaluator&, const Value&, const Arguments&);
using Filters = std::map<std::string_view, Filter>;

// Those that read lists and dicts; ApplyFilter knows the others too.
const Filters& ListFilters();

}  // namespace pagefuse::chat_template
