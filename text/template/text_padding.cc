// SPDX-License-Identifier: Apache-2.0
// Methods of texts that fill them up to a width, and that take them apart at a place.
#include <algorithm>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/text/find_text.h"
#include "pagefuse/text/template/template_format.h"
#include "pagefuse/text/template/template_text.h"
#include "pagefuse/text/template/text_methods.h"

namespace pagefuse::chat_template {
namespace {

// ljust, rjust, center
template <Padding::Side side>
absl::StatusOr<Value> Padded(Evaluator& evaluator, const Value& object,
                             const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(2));
  PF_ASSIGN_OR_RETURN(const int64_t width, IntegerArgument(arguments, 0, "", 0));
  PF_ASSIGN_OR_RETURN(const MarkedText fill, TextArgument(arguments, 1, "", MarkedText(" ")));
  if (CharacterCount(fill.bytes()) != 1) return Wrong("expected one character to fill with");
  return PaddedText(evaluator, *object.text(), {.width = width, .side = side, .fill = fill});
}

// Zeros between the sign and the digits.
absl::StatusOr<Value> ZeroFill(Evaluator& evaluator, const Value& object,
                               const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(1));
  PF_ASSIGN_OR_RETURN(const int64_t width, IntegerArgument(arguments, 0, "", 0));
  const MarkedText& text = *object.text();
  const bool has_sign = text.bytes().starts_with('-') || text.bytes().starts_with('+');
  PF_ASSIGN_OR_RETURN(const Value digits,
                      PaddedText(evaluator, text.Substr(has_sign, text.size()),
                                 {.width = std::max<int64_t>(width, has_sign) - has_sign,
                                  .side = Padding::kLeft,
                                  .fill = MarkedText("0")}));
  MarkedText out = text.Substr(0, has_sign);
  PF_RETURN_IF_ERROR(evaluator.Append(out, *digits.text()));
  return evaluator.Text(std::move(out));
}

// removeprefix, removesuffix
template <bool at_end>
absl::StatusOr<Value> WithoutEdge(Evaluator& evaluator, const Value& object,
                                  const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(1));
  PF_ASSIGN_OR_RETURN(const MarkedText edge, TextArgument(arguments, 0, ""));
  const MarkedText& text = *object.text();
  const bool found =
      at_end ? text.bytes().ends_with(edge.bytes()) : text.bytes().starts_with(edge.bytes());
  if (!found) return object;
  return evaluator.Text(at_end ? text.Substr(0, text.size() - edge.size())
                               : text.Substr(edge.size(), text.size()));
}

// partition, rpartition: what is in front of the first or last separator, it, and what is behind.
template <bool from_end>
absl::StatusOr<Value> Partition(Evaluator& evaluator, const Value& object,
                                const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(1));
  PF_ASSIGN_OR_RETURN(const MarkedText separator, TextArgument(arguments, 0, ""));
  if (separator.size() == 0) return Wrong("an empty separator");
  const MarkedText& text = *object.text();
  PF_RETURN_IF_ERROR(evaluator.Charge(text.size()));
  const size_t at = from_end ? FindLastText(text.bytes(), separator.bytes())
                             : FindText(text.bytes(), separator.bytes());
  const Value none{std::string()};
  if (at == std::string::npos) {
    return from_end ? Value::Tuple({none, none, object}) : Value::Tuple({object, none, none});
  }
  const size_t end = at + separator.size();
  return Value::Tuple({Value(text.Substr(0, at)), Value(text.Substr(at, end)),
                       Value(text.Substr(end, text.size()))});
}

absl::StatusOr<Value> Format(Evaluator& evaluator, const Value& object,
                             const Arguments& arguments) {
  return FormatBraces(evaluator, *object.text(), arguments);
}

}  // namespace

// Searched backwards, so that it takes no more than both lengths.
size_t FindLastText(const std::string& text, const std::string& wanted) {
  const std::string backwards(text.rbegin(), text.rend());
  const size_t at = FindText(backwards, std::string(wanted.rbegin(), wanted.rend()));
  return at == std::string::npos ? at : text.size() - at - wanted.size();
}

absl::StatusOr<Value> PaddedText(Evaluator& evaluator, const MarkedText& text,
                                 const Padding& padding) {
  const auto written = static_cast<int64_t>(CharacterCount(text.bytes()));
  if (padding.width <= written) return evaluator.Text(text);
  const int64_t missing = padding.width - written;
  if (missing > static_cast<int64_t>(Work::kMaxBytes)) return Work::TooLong();
  // As str.center of Python: what is odd stands on the left where the width is odd.
  const int64_t left = padding.side == Padding::kRight ? 0
                       : padding.side == Padding::kLeft
                           ? missing
                           : missing / 2 + (missing & padding.width & 1);
  PF_RETURN_IF_ERROR(evaluator.Charge(static_cast<size_t>(missing) * padding.fill.size()));
  MarkedText out;
  for (int64_t i = 0; i < left; ++i) out.Append(padding.fill);
  out.Append(text);
  for (int64_t i = left; i < missing; ++i) out.Append(padding.fill);
  return evaluator.Text(std::move(out));
}

const TextMethodTable& PaddingMethods() {
  static const auto& methods = *new TextMethodTable{{"center", Padded<Padding::kBoth>},
                                                    {"format", Format},
                                                    {"ljust", Padded<Padding::kRight>},
                                                    {"partition", Partition<false>},
                                                    {"removeprefix", WithoutEdge<false>},
                                                    {"removesuffix", WithoutEdge<true>},
                                                    {"rjust", Padded<Padding::kLeft>},
                                                    {"rpartition", Partition<true>},
                                                    {"zfill", ZeroFill}};
  return methods;
}

}  // namespace pagefuse::chat_template
