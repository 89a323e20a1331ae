// SPDX-License-Identifier: Apache-2.0
// The operations of chat templates on texts: the methods, and the filters that do the same.
#pragma once

#include <map>
#include <string_view>

#include "pagefuse/text/template/template_eval.h"

namespace pagefuse::chat_template {

using TextMethod = absl::StatusOr<Value> (*)(Evaluator&, const Value&, const Arguments&);

using TextMethodTable = std::map<std::string_view, TextMethod>;

// strip, split, replace, ... by name; their object is a text.
const TextMethodTable& TextMethods();
// Those of text_padding.cc, which TextMethods has too.
const TextMethodTable& PaddingMethods();

// The pairs of a dict, as lists of two.
absl::StatusOr<Value> DictPairs(Evaluator& evaluator, const Dict& dict);

// An argument that is a text, an integer; InvalidArgument if it is something else. `otherwise` if it is
// not given or none.
absl::StatusOr<MarkedText> TextArgument(const Arguments& arguments, size_t place,
                                        std::string_view name,
                                        std::optional<MarkedText> otherwise = std::nullopt);
absl::StatusOr<int64_t> IntegerArgument(const Arguments& arguments, size_t place,
                                        std::string_view name, int64_t otherwise);

// How a text is filled up to a width in characters, and at which side of it.
struct Padding {
  enum Side { kLeft, kRight, kBoth };
  int64_t width = 0;
  Side side = kRight;
  MarkedText fill = MarkedText(" ");
};
absl::StatusOr<Value> PaddedText(Evaluator& evaluator, const MarkedText& text,
                                 const Padding& padding);
// Where `wanted` lies last; npos if it does not.
size_t FindLastText(const std::string& text, const std::string& wanted);

// `text` without white space, or the characters of the argument "chars", at its ends.
absl::StatusOr<Value> StripText(Evaluator& evaluator, const MarkedText& text,
                                const Arguments& arguments, bool left, bool right);
absl::StatusOr<Value> ReplaceText(Evaluator& evaluator, const MarkedText& text,
                                  const Arguments& arguments);

}  // namespace pagefuse::chat_template
