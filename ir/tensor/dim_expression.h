// SPDX-License-Identifier: Apache-2.0
// Evaluates the text of a symbolic dim, as exporters write it: `past + seq`, `seq - 4*((seq//4))`.
//
// A sum or difference has blanks around its sign: `batch-size` and `a+b` are names, as people write
// them, and are symbols as a whole. Products need none: `2*seq`, `seq//4`.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "pagefuse/ir/tensor/shape.h"

namespace pagefuse {

// True for a plain symbol: a letter, `_` or a byte over 127, then those, digits and dots.
bool IsDimIdentifier(std::string_view text);

// The value of an expression of integers, identifiers, + - * //, unary minus and parentheses.
// Identifiers that `bindings` lacks stay symbols, and so does what stands in parentheses and is no
// expression: `2*(batch-size)`. Nullopt if the text is no such expression (or is
// absurdly long or deep).
std::optional<Dim> EvaluateDimExpression(std::string_view text,
                                         const std::map<std::string, Dim>& bindings);

}  // namespace pagefuse
