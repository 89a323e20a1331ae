// SPDX-License-Identifier: Apache-2.0
// Filters of chat templates that read lists and dicts.
#include <algorithm>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/text/template/template_filters.h"
#include "pagefuse/text/template/template_text.h"
#include "pagefuse/text/template/text_methods.h"

namespace pagefuse::chat_template {
namespace {

template <bool last>
absl::StatusOr<Value> AtEnd(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(0));
  PF_ASSIGN_OR_RETURN(const List items, evaluator.Items(value));
  if (!items.empty()) return last ? items.back() : items.front();
  return Value(Undefined{StrCat("nothing is ", last ? "last" : "first", " of no items")});
}

absl::StatusOr<Value> Join(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(2, {"d", "attribute"}));
  PF_ASSIGN_OR_RETURN(const MarkedText between, TextArgument(arguments, 0, "d", MarkedText()));
  PF_ASSIGN_OR_RETURN(const List items, evaluator.Items(value));
  MarkedText text;
  for (size_t i = 0; i < items.size(); ++i) {
    PF_ASSIGN_OR_RETURN(const Value member,
                        Member(evaluator, items[i], arguments.Find(1, "attribute")));
    PF_ASSIGN_OR_RETURN(const MarkedText part, member.Print(evaluator.work()));
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
  std::ranges::reverse(items);
  return evaluator.MakeList(std::move(items));
}

absl::StatusOr<Value> Sort(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(3, {"reverse", "case_sensitive", "attribute"}));
  const bool sensitive = arguments.IsTrue(1, "case_sensitive");
  PF_ASSIGN_OR_RETURN(const List items, evaluator.Items(value));
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : items) {
    PF_ASSIGN_OR_RETURN(const Value key, Member(evaluator, item, arguments.Find(2, "attribute")));
    keyed.emplace_back(SortKey(key, sensitive), item);
  }
  return SortBy(evaluator, std::move(keyed), arguments.IsTrue(0, "reverse"));
}

absl::StatusOr<Value> DictSort(Evaluator& evaluator, const Value& value,
                               const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(3, {"case_sensitive", "by", "reverse"}));
  const bool sensitive = arguments.IsTrue(0, "case_sensitive");
  PF_ASSIGN_OR_RETURN(const MarkedText by, TextArgument(arguments, 1, "by", MarkedText("key")));
  if (by.bytes() != "key" && by.bytes() != "value") return Wrong("by: expected key or value");
  PF_ASSIGN_OR_RETURN(const Value pairs, Items(evaluator, value, {}));
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& pair : *pairs.list()) {
    const Value& key = (*pair.list())[by.bytes() == "key" ? 0 : 1];
    keyed.emplace_back(SortKey(key, sensitive), pair);
  }
  return SortBy(evaluator, std::move(keyed), arguments.IsTrue(2, "reverse"));
}

absl::StatusOr<Value> Unique(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(2, {"case_sensitive", "attribute"}));
  const bool sensitive = arguments.IsTrue(0, "case_sensitive");
  PF_ASSIGN_OR_RETURN(const List items, evaluator.Items(value));
  List keys, kept;
  for (const Value& item : items) {
    PF_ASSIGN_OR_RETURN(Value key, Member(evaluator, item, arguments.Find(1, "attribute")));
    key = SortKey(key, sensitive);
    bool known = false;
    for (size_t i = 0; i < keys.size() && !known; ++i) {
      PF_ASSIGN_OR_RETURN(known, Equal(evaluator.work(), keys[i], key));
    }
    if (known) continue;
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

}  // namespace

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

Value SortKey(const Value& value, bool case_sensitive) {
  return value.text() && !case_sensitive ? Value(Lower(value.text()->bytes())) : value;
}

absl::StatusOr<Value> SortBy(Evaluator& evaluator, std::vector<std::pair<Value, Value>> items,
                             bool reverse) {
  for (size_t i = 0; i + 1 < items.size(); ++i) {
    PF_RETURN_IF_ERROR(evaluator.Charge(1024));
    PF_ASSIGN_OR_RETURN(const std::optional<int> order,
                        Compare(evaluator.work(), items[i].first, items[i + 1].first));
    if (!order) {
      return Wrong(StrCat("no order of ", items[i].first.KindName(), " and ",
                          items[i + 1].first.KindName()));
    }
  }
  absl::Status status;
  std::ranges::stable_sort(items, [&](const auto& a, const auto& b) {
    if (!status.ok()) return false;
    const auto compared = Compare(evaluator.work(), a.first, b.first);
    status = compared.status();
    const int order = compared.ok() ? compared->value_or(0) : 0;
    return reverse ? order > 0 : order < 0;
  });
  PF_RETURN_IF_ERROR(status);
  List list;
  for (auto& [key, value] : items) list.push_back(std::move(value));
  return evaluator.MakeList(std::move(list));
}

const Filters& ListFilters() {
  static const auto& filters = *new Filters{
      {"dictsort", DictSort},
      {"first", AtEnd<false>},
      {"items", Items},
      {"join", Join},
      {"last", AtEnd<true>},
      {"list", AsList},
      {"map", Map},
      {"max", Extreme<true>},
      {"min", Extreme<false>},
      {"reject", Select<false, false>},
      {"rejectattr", Select<false, true>},
      {"reverse", Reverse},
      {"select", Select<true, false>},
      {"selectattr", Select<true, true>},
      {"sort", Sort},
      {"sum", Sum},
      {"unique", Unique},
  };
  return filters;
}

}  // namespace pagefuse::chat_template
