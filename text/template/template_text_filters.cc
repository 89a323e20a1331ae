// SPDX-License-Identifier: Apache-2.0
// Filters of chat templates that lay out texts, and count their words.

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/text/template/template_filters.h"
#include "pagefuse/text/template/template_format.h"
#include "pagefuse/text/template/template_text.h"
#include "pagefuse/text/template/text_methods.h"
#include "pagefuse/text/tokenizer/unicode_classes.h"
#include "pagefuse/text/utf8.h"

namespace pagefuse::chat_template {
namespace {

// '%s: %s' | format(a, b)
absl::StatusOr<Value> Format(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  PF_ASSIGN_OR_RETURN(const MarkedText format, value.Print(evaluator.work()));
  if (!arguments.named.empty() && !arguments.positional.empty()) {
    return Wrong("expected arguments that all have names, or none that has one");
  }
  Dict named;
  for (const auto& [name, item] : arguments.named) named.emplace_back(MarkedText(name), item);
  PF_ASSIGN_OR_RETURN(const Value values, named.empty() ? Value::Tuple(arguments.positional)
                                                        : Value::Of(std::move(named)));
  return FormatPercent(evaluator, format, values);
}

// What \w of Python's patterns takes: letters, numbers and "_".
bool IsWordCharacter(char32_t point) {
  static const auto& letters = *new CodePointSet(*CategorySet("L"));
  static const auto& numbers = *new CodePointSet(*CategorySet("N"));
  return point == '_' || letters.Contains(point) || numbers.Contains(point);
}

absl::StatusOr<Value> WordCount(Evaluator& evaluator, const Value& value,
                                const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(0));
  PF_ASSIGN_OR_RETURN(const MarkedText text, value.Print(evaluator.work()));
  PF_RETURN_IF_ERROR(evaluator.Charge(text.size()));
  int64_t count = 0;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const bool word = IsWordCharacter(NextCodePoint(text.bytes(), at));
    count += word && !inside;
    inside = word;
  }
  return Value(count);
}

absl::StatusOr<Value> Center(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(1, {"width"}));
  PF_ASSIGN_OR_RETURN(const int64_t width, IntegerArgument(arguments, 0, "width", 80));
  PF_ASSIGN_OR_RETURN(const MarkedText text, value.Print(evaluator.work()));
  return PaddedText(evaluator, text, {.width = width, .side = Padding::kBoth});
}

// At most `length` characters, with the end among them, of whole words unless `killwords`. Texts that
// are longer by no more than `leeway` stay.
absl::StatusOr<Value> Truncate(Evaluator& evaluator, const Value& value,
                               const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(4, {"length", "killwords", "end", "leeway"}));
  PF_ASSIGN_OR_RETURN(const int64_t length, IntegerArgument(arguments, 0, "length", 255));
  PF_ASSIGN_OR_RETURN(const MarkedText end, TextArgument(arguments, 2, "end", MarkedText("...")));
  PF_ASSIGN_OR_RETURN(const int64_t leeway, IntegerArgument(arguments, 3, "leeway", 5));
  PF_ASSIGN_OR_RETURN(const MarkedText text, value.Print(evaluator.work()));
  PF_RETURN_IF_ERROR(evaluator.Charge(text.size()));
  const std::vector<size_t> starts = CharacterStarts(text.bytes());
  const auto end_length = static_cast<int64_t>(CharacterCount(end.bytes()));
  if (length < end_length) return Wrong(StrCat("expected a length of ", end_length, " at least"));
  if (leeway < 0) return Wrong("expected a leeway of 0 at least");
  const auto characters = static_cast<int64_t>(starts.size()) - 1;
  if (characters <= length || characters - length <= leeway) return evaluator.Text(text);
  size_t kept = starts[static_cast<size_t>(length - end_length)];
  if (!arguments.IsTrue(1, "killwords")) {
    const size_t space = std::string_view(text.bytes()).substr(0, kept).rfind(' ');
    if (space != std::string_view::npos) kept = space;
  }
  MarkedText out = text.Substr(0, kept);
  PF_RETURN_IF_ERROR(evaluator.Append(out, end));
  return evaluator.Text(std::move(out));
}

absl::StatusOr<Value> UrlEncode(Evaluator& evaluator, const Value& value,
                                const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(0));
  if (value.list() || value.dict()) return Wrong(StrCat("expected a text, got ", value.KindName()));
  PF_ASSIGN_OR_RETURN(const MarkedText text, value.Print(evaluator.work()));
  PF_RETURN_IF_ERROR(evaluator.Charge(text.size() * 3));
  std::string out;
  for (const char c : text.bytes()) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (byte >= '0' && byte <= '9') ||
                       ((byte | 0x20) >= 'a' && (byte | 0x20) <= 'z') ||
                       std::string_view("_.-~/").find(c) != std::string_view::npos;
    constexpr char kDigits[] = "0123456789ABCDEF";
    plain ? (out += c) : ((out += '%') += kDigits[byte >> 4]) += kDigits[byte & 15];
  }
  return evaluator.Text(text.Computed(std::move(out)));
}

// The attribute of a value, but not the items of a dict.
absl::StatusOr<Value> AttributeOf(Evaluator& evaluator, const Value& value,
                                  const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(1, {"name"}));
  PF_ASSIGN_OR_RETURN(const MarkedText name, TextArgument(arguments, 0, "name"));
  if (value.dict()) return FindMethod(value, name.bytes());
  return evaluator.Attribute(value, name.bytes());
}

}  // namespace

const Filters& TextFilters() {
  static const auto& filters = *new Filters{
      {"attr", AttributeOf},  {"center", Center},       {"format", Format},
      {"truncate", Truncate}, {"urlencode", UrlEncode}, {"wordcount", WordCount},
  };
  return filters;
}

}  // namespace pagefuse::chat_template
