// SPDX-License-Identifier: Apache-2.0
// Filters of chat templates, by name.
#pragma once

#include <map>
#include <string_view>

#include "absl/status/statusor.h"

#include "pagefuse/text/template/template_eval.h"

namespace pagefuse::chat_template {

using Filter = absl::StatusOr<Value> (*)(Evaluator&, const Value&, const Arguments&);
using Filters = std::map<std::string_view, Filter>;

// Those that read lists and dicts, that make groups of items, and that lay out texts; ApplyFilter
// knows the others too.
const Filters& ListFilters();
const Filters& GroupFilters();
const Filters& TextFilters();

// The member that `attribute` names, through dots; the value itself without a name.
absl::StatusOr<Value> Member(Evaluator& evaluator, const Value& value, const Value* attribute);
// What a value is compared by: texts without regard to case, unless the filter is asked to.
Value SortKey(const Value& value, bool case_sensitive);
// The second values in the order of the first. InvalidArgument where these have no order.
absl::StatusOr<Value> SortBy(Evaluator& evaluator, std::vector<std::pair<Value, Value>> items,
                             bool reverse);

}  // namespace pagefuse::chat_template
