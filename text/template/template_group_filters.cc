// SPDX-License-Identifier: Apache-2.0
// Filters of chat templates that put items into groups: groupby, batch, slice.
#include <algorithm>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/text/template/template_filters.h"
#include "pagefuse/text/template/text_methods.h"

namespace pagefuse::chat_template {
namespace {

// The items in the order of their keys, each behind its key as it is written.
absl::StatusOr<Value> SortedByKey(Evaluator& evaluator, const List& items,
                                  const Arguments& arguments) {
  const Value* otherwise = arguments.Find(1, "default");
  const bool sensitive = arguments.IsTrue(2, "case_sensitive");
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : items) {
    PF_ASSIGN_OR_RETURN(Value key, Member(evaluator, item, arguments.Find(0, "attribute")));
    if (key.is_undefined() && otherwise) key = *otherwise;
    PF_ASSIGN_OR_RETURN(Value pair, Value::Tuple({key, item}));
    keyed.emplace_back(SortKey(key, sensitive), std::move(pair));
  }
  return SortBy(evaluator, std::move(keyed), /*reverse=*/false);
}

// groupby('role'): the groups in the order of what their items have in common.
absl::StatusOr<Value> GroupBy(Evaluator& evaluator, const Value& value,
                              const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(3, {"attribute", "default", "case_sensitive"}));
  if (arguments.Find(0, "attribute") == nullptr) return Wrong("expected an attribute");
  const bool sensitive = arguments.IsTrue(2, "case_sensitive");
  PF_ASSIGN_OR_RETURN(const List items, evaluator.Items(value));
  PF_ASSIGN_OR_RETURN(const Value sorted, SortedByKey(evaluator, items, arguments));
  const List& pairs = *sorted.list();
  List groups;
  for (size_t first = 0, end = 0; first < pairs.size(); first = end) {
    const Value& grouper = (*pairs[first].list())[0];
    List members;
    for (; end < pairs.size(); ++end) {
      const List& pair = *pairs[end].list();
      PF_ASSIGN_OR_RETURN(const bool same, Equal(evaluator.work(), SortKey(grouper, sensitive),
                                                 SortKey(pair[0], sensitive)));
      if (!same && end > first) break;
      members.push_back(pair[1]);
    }
    PF_RETURN_IF_ERROR(evaluator.Charge(members.size() * Work::kBytesAnOperation));
    PF_ASSIGN_OR_RETURN(groups.emplace_back(), Value::Group(grouper, std::move(members)));
  }
  return evaluator.MakeList(std::move(groups));
}

// The count that a filter is given, of 1 at least.
absl::StatusOr<int64_t> CountArgument(const Arguments& arguments, std::string_view name) {
  PF_ASSIGN_OR_RETURN(const int64_t count, IntegerArgument(arguments, 0, name, 0));
  if (count < 1) return Wrong(StrCat(name, ": expected 1 at least"));
  return count;
}

// batch(3, fill_with): lists of three, the last of which is filled up.
absl::StatusOr<Value> Batch(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(2, {"linecount", "fill_with"}));
  PF_ASSIGN_OR_RETURN(const int64_t given, CountArgument(arguments, "linecount"));
  const auto count = static_cast<size_t>(given);
  const Value* fill = arguments.Find(1, "fill_with");
  PF_ASSIGN_OR_RETURN(const List items, evaluator.Items(value));
  List batches;
  for (size_t first = 0; first < items.size(); first += std::min(count, items.size() - first)) {
    const size_t end = first + std::min(count, items.size() - first);
    List batch(items.begin() + first, items.begin() + end);
    if (fill && !fill->is_none()) {
      const size_t missing = count - batch.size();
      if (missing > Work::kMaxBytes) return Work::TooLong();
      PF_RETURN_IF_ERROR(evaluator.Charge(missing * Work::kBytesAnOperation));
      batch.resize(count, *fill);
    }
    PF_ASSIGN_OR_RETURN(batches.emplace_back(), evaluator.MakeList(std::move(batch)));
  }
  return evaluator.MakeList(std::move(batches));
}

// slice(3, fill_with): three lists of nearly one length, the shorter of which are filled up.
absl::StatusOr<Value> Slices(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(2, {"slices", "fill_with"}));
  PF_ASSIGN_OR_RETURN(const int64_t given, CountArgument(arguments, "slices"));
  if (given > Work::kMaxOperations) return Work::TooLong();
  const auto count = static_cast<size_t>(given);
  const Value* fill = arguments.Find(1, "fill_with");
  PF_ASSIGN_OR_RETURN(const List items, evaluator.Items(value));
  const size_t least = items.size() / count, longer = items.size() % count;
  List slices;
  for (size_t i = 0, first = 0; i < count; ++i) {
    const size_t end = first + least + (i < longer);
    List slice(items.begin() + first, items.begin() + end);
    if (fill && !fill->is_none() && i >= longer) slice.push_back(*fill);
    PF_ASSIGN_OR_RETURN(slices.emplace_back(), evaluator.MakeList(std::move(slice)));
    first = end;
  }
  return evaluator.MakeList(std::move(slices));
}

}  // namespace

const Filters& GroupFilters() {
  static const auto& filters =
      *new Filters{{"batch", Batch}, {"groupby", GroupBy}, {"slice", Slices}};
  return filters;
}

}  // namespace pagefuse::chat_template
