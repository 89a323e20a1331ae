// Filters of chat templates.
#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/text/template/template_eval.h"
#include "pagefuse/text/template/template_text.h"
#include "pagefuse/text/template/text_methods.h"

namespace pagefuse::chat_template {
namespace {

absl::Status Wrong(std::string_view what) { return absl::InvalidArgumentError(AbslView(what)); }

using Filter = absl::StatusOr<Value> (*)(Evaluator&, const Value&, const Arguments&);

absl::StatusOr<Value> Trim(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(1, {"chars"}));
  PF_ASSIGN_OR_RETURN(const MarkedText text, value.Print());
  const Value* chars = arguments.Find(0, "chars");
  if (chars && !chars->is_none() && !chars->text()) return Wrong("expected a string");
  return evaluator.Text(
      Stripped(text, chars && chars->text() ? chars->text() : nullptr, true, true));
}

template <std::string (*map)(std::string_view)>
absl::StatusOr<Value> Mapped(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(0));
  PF_ASSIGN_OR_RETURN(const MarkedText text, value.Print());
  return evaluator.Text(text.Computed(map(text.bytes())));
}

absl::StatusOr<Value> Replace(Evaluator& evaluator, const Value& value,
                              const Arguments& arguments) {
  PF_ASSIGN_OR_RETURN(const MarkedText text, value.Print());
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
  const Value* ascii = arguments.Find(0, "ensure_ascii");
  options.ascii = ascii && ascii->IsTrue();
  const Value* sorted = arguments.Find(3, "sort_keys");
  options.sorted = sorted && sorted->IsTrue();
  PF_ASSIGN_OR_RETURN(MarkedText text, value.ToJson(options));
  return evaluator.Text(std::move(text));
}

absl::StatusOr<Value> First(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(0));
  PF_ASSIGN_OR_RETURN(const List items, evaluator.Items(value));
  return items.empty() ? Value(Undefined{"nothing is first of no items"}) : items.front();
}

absl::StatusOr<Value> Last(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(0));
  PF_ASSIGN_OR_RETURN(const List items, evaluator.Items(value));
  return items.empty() ? Value(Undefined{"nothing is last of no items"}) : items.back();
}

absl::StatusOr<Value> Default(Evaluator&, const Value& value, const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(2, {"default_value", "boolean"}));
  const Value* otherwise = arguments.Find(0, "default_value");
  const Value* boolean = arguments.Find(1, "boolean");
  const bool missing = value.is_undefined() || (boolean && boolean->IsTrue() && !value.IsTrue());
  if (!missing) return value;
  return otherwise ? *otherwise : Value(std::string());
}

// The member that `attribute` names, through dots; the value itself without a name.
absl::StatusOr<Value> Member(Evaluator& evaluator, const Value& value, const Value* attribute) {
  if (attribute == nullptr || attribute->is_none()) return value;
  if (attribute->integer()) return evaluator.Item(value, *attribute);
  if (!attribute->text()) return Wrong("attribute: expected a string");
  Value member = value;
  std::string_view path = attribute->text()->bytes();
  while (true) {
    const size_t dot = std::min(path.find('.'), path.size());
    PF_ASSIGN_OR_RETURN(member, evaluator.Item(member, Value(std::string(path.substr(0, dot)))));
    if (dot == path.size()) return member;
    path.remove_prefix(dot + 1);
  }
}

absl::StatusOr<Value> Join(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(2, {"d", "attribute"}));
  PF_ASSIGN_OR_RETURN(const MarkedText between, TextArgument(arguments, 0, "d", MarkedText()));
  PF_ASSIGN_OR_RETURN(const List items, evaluator.Items(value));
  MarkedText text;
  for (size_t i = 0; i < items.size(); ++i) {
    PF_ASSIGN_OR_RETURN(const Value member,
                        Member(evaluator, items[i], arguments.Find(1, "attribute")));
    PF_ASSIGN_OR_RETURN(const MarkedText part, member.Print());
    if (i > 0) PF_RETURN_IF_ERROR(evaluator.Append(text, between));
    PF_RETURN_IF_ERROR(evaluator.Append(text, part));
  }
  return Value(std::move(text));
}

absl::StatusOr<Value> AsList(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(0));
  PF_ASSIGN_OR_RETURN(List items, evaluator.Items(value));
  return evaluator.MakeList(std::move(items));
}

absl::StatusOr<Value> AsString(Evaluator& evaluator, const Value& value,
                               const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(0));
  PF_ASSIGN_OR_RETURN(MarkedText text, value.Print());
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

absl::StatusOr<Value> Items(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(0));
  if (value.is_undefined()) return Value::Of(List());
  if (!value.dict()) return Wrong(StrCat("expected a dict, got ", value.KindName()));
  return DictPairs(evaluator, *value.dict());
}

absl::StatusOr<Value> Reverse(Evaluator& evaluator, const Value& value,
                              const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(0));
  if (value.text()) return Slice(evaluator, value, {std::nullopt, std::nullopt, -1});
  PF_ASSIGN_OR_RETURN(List items, evaluator.Items(value));
  std::reverse(items.begin(), items.end());
  return evaluator.MakeList(std::move(items));
}

// Texts are compared without regard to case, unless the filter is asked to.
Value SortKey(const Value& value, bool case_sensitive) {
  return value.text() && !case_sensitive ? Value(Lower(value.text()->bytes())) : value;
}

absl::StatusOr<Value> SortBy(Evaluator& evaluator, std::vector<std::pair<Value, Value>> items,
                             bool reverse) {
  for (size_t i = 0; i + 1 < items.size(); ++i) {
    PF_RETURN_IF_ERROR(evaluator.Charge(1024));
    if (!Compare(items[i].first, items[i + 1].first)) {
      return Wrong(StrCat("no order of ", items[i].first.KindName(), " and ",
                          items[i + 1].first.KindName()));
    }
  }
  std::stable_sort(items.begin(), items.end(), [reverse](const auto& a, const auto& b) {
    const int order = Compare(a.first, b.first).value_or(0);
    return reverse ? order > 0 : order < 0;
  });
  List list;
  for (auto& [key, value] : items) list.push_back(std::move(value));
  return evaluator.MakeList(std::move(list));
}

absl::StatusOr<Value> Sort(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(3, {"reverse", "case_sensitive", "attribute"}));
  const Value* reverse = arguments.Find(0, "reverse");
  const Value* sensitive = arguments.Find(1, "case_sensitive");
  PF_ASSIGN_OR_RETURN(const List items, evaluator.Items(value));
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : items) {
    PF_ASSIGN_OR_RETURN(const Value key, Member(evaluator, item, arguments.Find(2, "attribute")));
    keyed.emplace_back(SortKey(key, sensitive && sensitive->IsTrue()), item);
  }
  return SortBy(evaluator, std::move(keyed), reverse && reverse->IsTrue());
}

absl::StatusOr<Value> DictSort(Evaluator& evaluator, const Value& value,
                               const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(3, {"case_sensitive", "by", "reverse"}));
  const Value* sensitive = arguments.Find(0, "case_sensitive");
  const Value* reverse = arguments.Find(2, "reverse");
  PF_ASSIGN_OR_RETURN(const MarkedText by, TextArgument(arguments, 1, "by", MarkedText("key")));
  if (by.bytes() != "key" && by.bytes() != "value") return Wrong("by: expected key or value");
  PF_ASSIGN_OR_RETURN(const Value pairs, Items(evaluator, value, {}));
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& pair : *pairs.list()) {
    const Value& key = (*pair.list())[by.bytes() == "key" ? 0 : 1];
    keyed.emplace_back(SortKey(key, sensitive && sensitive->IsTrue()), pair);
  }
  return SortBy(evaluator, std::move(keyed), reverse && reverse->IsTrue());
}

absl::StatusOr<Value> Unique(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(2, {"case_sensitive", "attribute"}));
  const Value* sensitive = arguments.Find(0, "case_sensitive");
  PF_ASSIGN_OR_RETURN(const List items, evaluator.Items(value));
  List keys, kept;
  for (const Value& item : items) {
    PF_ASSIGN_OR_RETURN(Value key, Member(evaluator, item, arguments.Find(1, "attribute")));
    key = SortKey(key, sensitive && sensitive->IsTrue());
    PF_RETURN_IF_ERROR(evaluator.Charge(keys.size() * 16));
    if (std::any_of(keys.begin(), keys.end(),
                    [&](const Value& other) { return Equal(other, key); }))
      continue;
    keys.push_back(std::move(key));
    kept.push_back(item);
  }
  return evaluator.MakeList(std::move(kept));
}

// The least or greatest item.
template <bool greatest>
absl::StatusOr<Value> Extreme(Evaluator& evaluator, const Value& value,
                              const Arguments& arguments) {
  PF_ASSIGN_OR_RETURN(const Value sorted, Sort(evaluator, value, arguments));
  if (sorted.list()->empty()) return Value(Undefined{"no items"});
  return greatest ? sorted.list()->back() : sorted.list()->front();
}

absl::StatusOr<Value> Sum(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(2, {"attribute", "start"}));
  const Value* start = arguments.Find(1, "start");
  Value sum = start ? *start : Value(int64_t{0});
  PF_ASSIGN_OR_RETURN(const List items, evaluator.Items(value));
  for (const Value& item : items) {
    PF_ASSIGN_OR_RETURN(const Value member,
                        Member(evaluator, item, arguments.Find(0, "attribute")));
    PF_ASSIGN_OR_RETURN(sum, evaluator.Binary("+", sum, member));
  }
  return sum;
}

// map('upper'), map('default', 'x'), map(attribute='name')
absl::StatusOr<Value> Map(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  PF_ASSIGN_OR_RETURN(const List items, evaluator.Items(value));
  const Value* attribute = arguments.positional.empty() ? arguments.Find(0, "attribute") : nullptr;
  Arguments rest = arguments;
  std::string name;
  if (attribute == nullptr) {
    PF_ASSIGN_OR_RETURN(const MarkedText filter, TextArgument(arguments, 0, ""));
    name = filter.bytes();
    rest.positional.erase(rest.positional.begin());
  }
  const Value* otherwise = arguments.Find(1, "default");
  List mapped;
  for (const Value& item : items) {
    PF_RETURN_IF_ERROR(evaluator.Charge(64));
    if (attribute == nullptr) {
      PF_ASSIGN_OR_RETURN(mapped.emplace_back(), ApplyFilter(evaluator, name, item, rest));
      continue;
    }
    PF_ASSIGN_OR_RETURN(mapped.emplace_back(), Member(evaluator, item, attribute));
    if (mapped.back().is_undefined() && otherwise) mapped.back() = *otherwise;
  }
  return evaluator.MakeList(std::move(mapped));
}

// select, reject, selectattr, rejectattr
template <bool wanted, bool by_attribute>
absl::StatusOr<Value> Select(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  PF_ASSIGN_OR_RETURN(const List items, evaluator.Items(value));
  Arguments rest = arguments;
  const auto take = [&rest]() -> std::optional<Value> {
    if (rest.positional.empty()) return std::nullopt;
    Value front = rest.positional.front();
    rest.positional.erase(rest.positional.begin());
    return front;
  };
  const std::optional<Value> attribute = by_attribute ? take() : std::nullopt;
  if (by_attribute && !attribute) return Wrong("expected the name of an attribute");
  const std::optional<Value> test = take();
  if (test && !test->text()) return Wrong("expected the name of a test");
  List kept;
  for (const Value& item : items) {
    PF_RETURN_IF_ERROR(evaluator.Charge(64));
    PF_ASSIGN_OR_RETURN(const Value member,
                        Member(evaluator, item, attribute ? &*attribute : nullptr));
    bool holds = member.IsTrue();
    if (test) {
      PF_ASSIGN_OR_RETURN(holds, ApplyTest(evaluator, test->text()->bytes(), member, rest));
    }
    if (holds == wanted) kept.push_back(item);
  }
  return evaluator.MakeList(std::move(kept));
}

absl::StatusOr<Value> Indent(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(3, {"width", "first", "blank"}));
  const Value* width = arguments.Find(0, "width");
  MarkedText margin(std::string(4, ' '));
  if (width && width->text()) margin = *width->text();
  if (width && width->integer())
    margin = MarkedText(std::string(std::clamp<int64_t>(*width->integer(), 0, 1000), ' '));
  const Value* first = arguments.Find(1, "first");
  const Value* blank = arguments.Find(2, "blank");
  PF_ASSIGN_OR_RETURN(const MarkedText text, value.Print());
  MarkedText out;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.bytes().find('\n', at), text.size());
    const bool indented =
        at == 0 ? first && first->IsTrue() : end > at || (blank && blank->IsTrue());
    if (indented) PF_RETURN_IF_ERROR(evaluator.Append(out, margin));
    PF_RETURN_IF_ERROR(evaluator.Append(out, text.Substr(at, std::min(end + 1, text.size()))));
    at = end + 1;
  }
  return evaluator.Text(std::move(out));
}

absl::StatusOr<Value> Escape(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(0));
  PF_ASSIGN_OR_RETURN(const MarkedText text, value.Print());
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

const std::map<std::string_view, Filter>& Filters() {
  static const auto& filters = *new std::map<std::string_view, Filter>{
      {"abs", Abs},
      {"capitalize", Mapped<Capitalized>},
      {"count", Length},
      {"d", Default},
      {"default", Default},
      {"dictsort", DictSort},
      {"e", Escape},
      {"escape", Escape},
      {"first", First},
      {"float", AsFloat},
      {"indent", Indent},
      {"int", AsInteger},
      {"items", Items},
      {"join", Join},
      {"last", Last},
      {"length", Length},
      {"list", AsList},
      {"lower", Mapped<Lower>},
      {"map", Map},
      {"max", Extreme<true>},
      {"min", Extreme<false>},
      {"reject", Select<false, false>},
      {"rejectattr", Select<false, true>},
      {"replace", Replace},
      {"reverse", Reverse},
      {"round", Round},
      {"safe", Same},
      {"select", Select<true, false>},
      {"selectattr", Select<true, true>},
      {"sort", Sort},
      {"string", AsString},
      {"sum", Sum},
      {"title", Mapped<Titled>},
      {"tojson", ToJson},
      {"trim", Trim},
      {"unique", Unique},
      {"upper", Mapped<Upper>},
  };
  return filters;
}

// Tests.

using Test = bool (*)(const Value&);

const std::map<std::string_view, Test>& Tests() {
  static const auto& tests = *new std::map<std::string_view, Test>{
      {"defined", [](const Value& v) { return !v.is_undefined(); }},
      {"undefined", [](const Value& v) { return v.is_undefined(); }},
      {"none", [](const Value& v) { return v.is_none(); }},
      {"boolean", [](const Value& v) { return v.flag() != nullptr; }},
      {"true", [](const Value& v) { return v.flag() && *v.flag(); }},
      {"false", [](const Value& v) { return v.flag() && !*v.flag(); }},
      {"integer", [](const Value& v) { return v.integer() && !v.flag(); }},
      {"float", [](const Value& v) { return v.is_float(); }},
      {"number", [](const Value& v) { return v.is_number(); }},
      {"string", [](const Value& v) { return v.text() != nullptr; }},
      {"mapping", [](const Value& v) { return v.dict() != nullptr; }},
      {"sequence",
       [](const Value& v) { return v.list() || v.dict() || v.text() || v.is_undefined(); }},
      {"iterable",
       [](const Value& v) { return v.list() || v.dict() || v.text() || v.is_undefined(); }},
      {"callable", [](const Value& v) { return v.macro() || v.function(); }},
      {"odd", [](const Value& v) { return v.integer() && *v.integer() % 2 != 0; }},
      {"even", [](const Value& v) { return v.integer() && *v.integer() % 2 == 0; }},
      {"lower",
       [](const Value& v) { return v.text() && Lower(v.text()->bytes()) == v.text()->bytes(); }},
      {"upper",
       [](const Value& v) { return v.text() && Upper(v.text()->bytes()) == v.text()->bytes(); }},
  };
  return tests;
}

// Tests that compare with an argument, as the operator that they stand for.
std::string_view OperatorOf(std::string_view test) {
  static constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"eq", "=="}, {"equalto", "=="},    {"==", "=="},        {"ne", "!="}, {"!=", "!="},
      {"lt", "<"},  {"lessthan", "<"},    {"<", "<"},          {"le", "<="}, {"<=", "<="},
      {"gt", ">"},  {"greaterthan", ">"}, {">", ">"},          {"ge", ">="}, {">=", ">="},
      {"in", "in"}, {"sameas", "=="},     {"divisibleby", "%"}};
  for (const auto& [name, op] : kNames) {
    if (name == test) return op;
  }
  return "";
}

absl::StatusOr<bool> TestOperator(Evaluator& evaluator, std::string_view op, const Value& a,
                                  const Value& b) {
  if (op == "==" || op == "!=") return Equal(a, b) == (op == "==");
  if (op == "in") return evaluator.Contains(b, a);
  if (op == "%") {
    PF_ASSIGN_OR_RETURN(const Value rest, evaluator.Binary("%", a, b));
    return !rest.IsTrue();
  }
  const std::optional<int> order = Compare(a, b);
  if (!order) return Wrong(StrCat("no order of ", a.KindName(), " and ", b.KindName()));
  return op == "<" ? *order < 0 : op == "<=" ? *order <= 0 : op == ">" ? *order > 0 : *order >= 0;
}

}  // namespace

absl::StatusOr<Value> ApplyFilter(Evaluator& evaluator, const std::string& name, const Value& value,
                                  const Arguments& arguments) {
  const auto found = Filters().find(name);
  if (found == Filters().end())
    return absl::UnimplementedError(StrCat("the filter \"", name, "\" is not known"));
  auto result = found->second(evaluator, value, arguments);
  if (result.ok()) return result;
  return absl::Status(result.status().code(),
                      StrCat("filter ", name, ": ", StdView(result.status().message())));
}

absl::StatusOr<bool> ApplyTest(Evaluator& evaluator, const std::string& name, const Value& value,
                               const Arguments& arguments) {
  if (const auto found = Tests().find(name); found != Tests().end()) {
    PF_RETURN_IF_ERROR(arguments.Check(0));
    return found->second(value);
  }
  const std::string_view op = OperatorOf(name);
  if (op.empty()) return absl::UnimplementedError(StrCat("the test \"", name, "\" is not known"));
  PF_RETURN_IF_ERROR(arguments.Check(1));
  if (arguments.positional.empty())
    return Wrong(StrCat("test ", name, ": expected a value to compare with"));
  return TestOperator(evaluator, op, value, arguments.positional[0]);
}

}  // namespace pagefuse::chat_template
