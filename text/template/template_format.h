// SPDX-License-Identifier: Apache-2.0
// Formats texts of chat templates as Python does.
#pragma once

#include "pagefuse/text/template/template_eval.h"

namespace pagefuse::chat_template {

// `format % values`: a tuple of values, a dict for fields such as %(name)s, or one value.
absl::StatusOr<Value> FormatPercent(Evaluator& evaluator, const MarkedText& format,
                                    const Value& values);
// format.format(...): fields such as {}, {0}, {name}, {name.member[0]!r:>8}.
absl::StatusOr<Value> FormatBraces(Evaluator& evaluator, const MarkedText& format,
                                   const Arguments& arguments);

}  // namespace pagefuse::chat_template
