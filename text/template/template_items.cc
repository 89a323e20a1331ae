// SPDX-License-Identifier: Apache-2.0
// What templates read of values: members, elements, items.

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/text/find_text.h"
#include "pagefuse/text/template/template_eval.h"
#include "pagefuse/text/template/template_text.h"

namespace pagefuse::chat_template {
namespace {

// What an error shows of a name; longer ones belong to no attribute.
constexpr size_t kMaxName = 256;
constexpr std::string_view kNoElement = " has no such element";
// What a copy of an item costs, as bytes that are read.
constexpr size_t kItemBytes = 256;

}  // namespace

absl::StatusOr<Value> Evaluator::Attribute(const Value& object, const std::string& name) {
  if (const Undefined* undefined = object.undefined()) return Wrong(undefined->what);
  if (const Namespace* space = object.name_space()) {
    PF_RETURN_IF_ERROR(Charge(space->members.size()));
    if (const Value* member = Lookup(space->members, name)) return *member;
  }
  if (object.is_group() && (name == "grouper" || name == "list")) {
    return (*object.list())[name == "list"];
  }
  Value method = FindMethod(object, name);
  if (!method.is_undefined()) return method;
  if (const Dict* dict = object.dict()) {
    PF_RETURN_IF_ERROR(Charge(dict->size()));
    if (const Value* found = Lookup(*dict, name)) return *found;
  }
  return Value(Undefined{StrCat(object.KindName(), " has no attribute \"", name, "\"")});
}

absl::StatusOr<Value> Evaluator::Item(const Value& object, const Value& key) {
  if (const Undefined* undefined = object.undefined()) return Wrong(undefined->what);
  if (const MarkedText* name = key.text()) {
    const Dict* dict = object.dict();
    if (dict) PF_RETURN_IF_ERROR(Charge(dict->size()));
    const Value* found = dict ? Lookup(*dict, name->bytes()) : nullptr;
    if (found) return *found;
    if (name->size() > kMaxName) return Value(Undefined{StrCat(object.KindName(), kNoElement)});
    return Attribute(object, name->bytes());
  }
  const auto place = key.integer();
  const MarkedText* text = object.text();
  if (place && (object.list() || text)) {
    const auto size =
        static_cast<int64_t>(text ? CharacterCount(text->bytes()) : object.list()->size());
    if (text) PF_RETURN_IF_ERROR(Charge(text->size()));
    const int64_t at = *place < 0 ? *place + size : *place;
    if (at < 0 || at >= size)
      return Value(Undefined{StrCat(object.KindName(), " has no element ", *place)});
    if (!text) return (*object.list())[at];
    const std::vector<size_t> starts = CharacterStarts(text->bytes());
    return Value(text->Substr(starts[at], starts[at + 1]));
  }
  return Value(Undefined{StrCat(object.KindName(), kNoElement)});
}

absl::StatusOr<List> Evaluator::Items(const Value& value) {
  if (value.is_undefined()) return List();
  if (const List* list = value.list()) {
    PF_RETURN_IF_ERROR(work_.ChargeRead(list->size() * kItemBytes));
    return *list;
  }
  List items;
  if (const Dict* dict = value.dict()) {
    PF_RETURN_IF_ERROR(Charge(dict->size() * Work::kBytesAnOperation));
    for (const auto& [key, item] : *dict) {
      PF_RETURN_IF_ERROR(Charge(key.size()));
      items.emplace_back(key);
    }
    return items;
  }
  const MarkedText* text = value.text();
  if (text == nullptr) return Wrong(StrCat(value.KindName(), " has no items"));
  PF_RETURN_IF_ERROR(Charge(text->size()));
  const std::vector<size_t> starts = CharacterStarts(text->bytes());
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    PF_RETURN_IF_ERROR(Charge(0));
    items.emplace_back(text->Substr(starts[i], starts[i + 1]));
  }
  return items;
}

absl::StatusOr<bool> Evaluator::Contains(const Value& container, const Value& item) {
  if (const MarkedText* text = container.text()) {
    if (!item.text()) return Wrong(StrCat("in a string: expected a string, got ", item.KindName()));
    PF_RETURN_IF_ERROR(Charge(text->size()));
    return FindText(text->bytes(), item.text()->bytes()) != std::string::npos;
  }
  if (const Dict* dict = container.dict()) {
    PF_RETURN_IF_ERROR(Charge(dict->size()));
    return item.text() && Lookup(*dict, item.text()->bytes());
  }
  PF_ASSIGN_OR_RETURN(const List items, Items(container));
  for (const Value& other : items) {
    PF_ASSIGN_OR_RETURN(const bool same, Equal(work_, other, item));
    if (same) return true;
  }
  return false;
}

}  // namespace pagefuse::chat_template
