// SPDX-License-Identifier: Apache-2.0
// Filters of chat templates that read texts, numbers and any value.
#include "pagefuse/text/template/template_filters.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/status_place.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/text/template/template_text.h"
#include "pagefuse/text/template/text_methods.h"

namespace pagefuse::chat_template {
namespace {

absl::StatusOr<Value> Trim(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  PF_ASSIGN_OR_RETURN(const MarkedText text, value.Print(evaluator.work()));
  return StripText(evaluator, text, arguments, /*left=*/true, /*right=*/true);
}

template <std::string (*map)(std::string_view)>
absl::StatusOr<Value> Mapped(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(0));
  PF_ASSIGN_OR_RETURN(const MarkedText text, value.Print(evaluator.work()));
  return evaluator.Text(text.Computed(map(text.bytes())));
}

absl::StatusOr<Value> Replace(Evaluator& evaluator, const Value& value,
                              const Arguments& arguments) {
  PF_ASSIGN_OR_RETURN(const MarkedText text, value.Print(evaluator.work()));
  return ReplaceText(evaluator, text, arguments);
}

absl::StatusOr<Value> Length(Evaluator&, const Value& value, const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(0));
  if (value.is_undefined()) return Value(int64_t{0});
  if (value.text()) return Value(static_cast<int64_t>(CharacterCount(value.text()->bytes())));
  if (value.list()) return Value(static_cast<int64_t>(value.list()->size()));
  if (value.dict()) return Value(static_cast<int64_t>(value.dict()->size()));
  return Wrong(StrCat(value.KindName(), " has no length"));
}

absl::StatusOr<Value> ToJson(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(4, {"ensure_ascii", "indent", "separators", "sort_keys"}));
  Value::JsonOptions options;
  const Value* indent = arguments.Find(1, "indent");
  if (indent && indent->integer()) {
    options.indent = std::clamp<int64_t>(*indent->integer(), 0, 100);
    options.item_separator.assign(1, ',');
  }
  const Value* separators = arguments.Find(2, "separators");
  if (separators && separators->list() && separators->list()->size() == 2) {
    const List& pair = *separators->list();
    if (!pair[0].text() || !pair[1].text()) return Wrong("separators: expected two strings");
    options.item_separator = pair[0].text()->bytes();
    options.key_separator = pair[1].text()->bytes();
  }
  options.ascii = arguments.IsTrue(0, "ensure_ascii");
  options.sorted = arguments.IsTrue(3, "sort_keys");
  PF_ASSIGN_OR_RETURN(MarkedText text, value.ToJson(evaluator.work(), options));
  return evaluator.Text(std::move(text));
}

absl::StatusOr<Value> Default(Evaluator&, const Value& value, const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(2, {"default_value", "boolean"}));
  const Value* otherwise = arguments.Find(0, "default_value");
  const bool missing = value.is_undefined() || (arguments.IsTrue(1, "boolean") && !value.IsTrue());
  if (!missing) return value;
  return otherwise ? *otherwise : Value(std::string());
}

absl::StatusOr<Value> AsString(Evaluator& evaluator, const Value& value,
                               const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(0));
  PF_ASSIGN_OR_RETURN(MarkedText text, value.Print(evaluator.work()));
  return evaluator.Text(std::move(text));
}

absl::StatusOr<Value> AsInteger(Evaluator&, const Value& value, const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(1, {"default"}));
  PF_ASSIGN_OR_RETURN(const int64_t otherwise, IntegerArgument(arguments, 0, "default", 0));
  if (value.integer()) return Value(*value.integer());
  std::optional<double> real = value.number();
  if (value.text()) {
    int64_t whole = 0;
    if (absl::SimpleAtoi(value.text()->bytes(), &whole)) return Value(whole);
    double parsed = 0;
    if (absl::SimpleAtod(value.text()->bytes(), &parsed)) real = parsed;
  }
  const bool fits = real && std::abs(*real) < 9e18;
  return Value(fits ? static_cast<int64_t>(*real) : otherwise);
}

absl::StatusOr<Value> AsFloat(Evaluator&, const Value& value, const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(1, {"default"}));
  if (value.number()) return Value(*value.number());
  double parsed = 0;
  if (value.text() && absl::SimpleAtod(value.text()->bytes(), &parsed)) return Value(parsed);
  const Value* otherwise = arguments.Find(0, "default");
  return otherwise ? *otherwise : Value(0.0);
}

absl::StatusOr<Value> Abs(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(0));
  if (!value.is_number()) return Wrong(StrCat("expected a number, got ", value.KindName()));
  if (value.is_float()) return Value(std::abs(*value.number()));
  return *value.integer() < 0 ? evaluator.Binary("-", Value(int64_t{0}), value) : value;
}

absl::StatusOr<Value> Indent(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(3, {"width", "first", "blank"}));
  const Value* width = arguments.Find(0, "width");
  MarkedText margin(std::string(4, ' '));
  if (width && width->text()) margin = *width->text();
  if (width && width->integer())
    margin = MarkedText(std::string(std::clamp<int64_t>(*width->integer(), 0, 1000), ' '));
  const bool first = arguments.IsTrue(1, "first"), blank = arguments.IsTrue(2, "blank");
  PF_ASSIGN_OR_RETURN(const MarkedText text, value.Print(evaluator.work()));
  MarkedText out;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.bytes().find('\n', at), text.size());
    const bool indented = at == 0 ? first : end > at || blank;
    if (indented) PF_RETURN_IF_ERROR(evaluator.Append(out, margin));
    PF_RETURN_IF_ERROR(evaluator.Append(out, text.Substr(at, std::min(end + 1, text.size()))));
    at = end + 1;
  }
  return evaluator.Text(std::move(out));
}

absl::StatusOr<Value> Escape(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(0));
  PF_ASSIGN_OR_RETURN(const MarkedText text, value.Print(evaluator.work()));
  return evaluator.Text(text.Computed(absl::StrReplaceAll(
      text.bytes(),
      {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"'", "&#39;"}, {"\"", "&#34;"}})));
}

absl::StatusOr<Value> Round(Evaluator&, const Value& value, const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(1, {"precision"}));
  PF_ASSIGN_OR_RETURN(const int64_t precision, IntegerArgument(arguments, 0, "precision", 0));
  if (!value.is_number() || std::abs(precision) > 15)
    return Wrong("expected a number and a precision of 15 at most");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  return Value(std::nearbyint(*value.number() * scale) / scale);
}

absl::StatusOr<Value> Same(Evaluator&, const Value& value, const Arguments&) { return value; }

Filters AllFilters() {
  Filters all = ListFilters();
  all.insert(GroupFilters().begin(), GroupFilters().end());
  all.insert(TextFilters().begin(), TextFilters().end());
  all.insert({
      {"abs", Abs},
      {"capitalize", Mapped<Capitalized>},
      {"count", Length},
      {"d", Default},
      {"default", Default},
      {"e", Escape},
      {"escape", Escape},
      {"float", AsFloat},
      {"forceescape", Escape},
      {"indent", Indent},
      {"int", AsInteger},
      {"length", Length},
      {"lower", Mapped<Lower>},
      {"replace", Replace},
      {"round", Round},
      {"safe", Same},
      {"string", AsString},
      {"title", Mapped<Titled>},
      {"tojson", ToJson},
      {"trim", Trim},
      {"upper", Mapped<Upper>},
  });
  return all;
}

const Filters& KnownFilters() {
  static const auto& filters = *new Filters(AllFilters());
  return filters;
}

}  // namespace

bool IsFilter(std::string_view name) { return KnownFilters().contains(name); }

absl::StatusOr<Value> ApplyFilter(Evaluator& evaluator, const std::string& name, const Value& value,
                                  const Arguments& arguments) {
  const auto found = KnownFilters().find(name);
  if (found == KnownFilters().end())
    return absl::UnimplementedError(StrCat("the filter \"", name, "\" is not known"));
  PF_RETURN_IF_ERROR(evaluator.ChargeRead(value, arguments));
  auto result = found->second(evaluator, value, arguments);
  if (result.ok()) return result;
  return AtPlace(StrCat("filter ", name), result.status());
}

}  // namespace pagefuse::chat_template
