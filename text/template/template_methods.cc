// SPDX-License-Identifier: Apache-2.0
// Functions of chat templates, and the methods of their texts and dicts.
#include <map>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/text/template/template_eval.h"
#include "pagefuse/text/template/text_methods.h"

namespace pagefuse::chat_template {
namespace {

// Functions.

absl::StatusOr<Value> Range(Evaluator& evaluator, const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(3));
  int64_t numbers[3] = {0, 0, 1};
  const auto& given = arguments.positional;
  if (given.empty()) return Wrong("expected an integer");
  for (size_t i = 0; i < given.size(); ++i) {
    if (!given[i].integer()) return Wrong(StrCat("expected an integer, got ", given[i].KindName()));
    numbers[given.size() == 1 ? 1 : i] = *given[i].integer();
  }
  const auto [first, end, step] = numbers;
  if (step == 0) return Wrong("expected a step, got 0");
  List list;
  for (int64_t i = first; step > 0 ? i < end : i > end;) {
    PF_RETURN_IF_ERROR(evaluator.Charge(0));
    list.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return Value::Of(std::move(list));
}

absl::StatusOr<Value> MakeNamespace(Evaluator& evaluator, const Arguments& arguments) {
  Namespace* space = evaluator.NewNamespace();
  for (const Value& value : arguments.positional) {
    if (!value.dict()) return Wrong(StrCat("expected a dict, got ", value.KindName()));
    for (const auto& [key, item] : *value.dict()) {
      PF_RETURN_IF_ERROR(evaluator.Charge(key.size()));
      space->members.emplace_back(key.bytes(), item);
    }
  }
  for (const auto& [name, value] : arguments.named) space->members.emplace_back(name, value);
  return Value(space);
}

// dict(other, a=1)
absl::StatusOr<Value> MakeDict(Evaluator& evaluator, const Arguments& arguments) {
  if (arguments.positional.size() > 1) return Wrong("expected one dict, and arguments with names");
  Dict dict;
  if (!arguments.positional.empty()) {
    const Value& other = arguments.positional[0];
    if (!other.dict()) return Wrong(StrCat("expected a dict, got ", other.KindName()));
    PF_RETURN_IF_ERROR(evaluator.Charge(other.dict()->size() * Work::kBytesAnOperation));
    dict = *other.dict();
  }
  for (const auto& [name, value] : arguments.named) {
    PF_RETURN_IF_ERROR(evaluator.Charge(dict.size()));
    std::erase_if(dict, [&name = name](const auto& item) { return item.first.bytes() == name; });
    dict.emplace_back(MarkedText(name), value);
  }
  return Value::Of(std::move(dict));
}

// joiner(', '): nothing in the first call, the separator in all later ones.
absl::StatusOr<Value> MakeJoiner(Evaluator&, const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(1, {"sep"}));
  PF_ASSIGN_OR_RETURN(const MarkedText separator,
                      TextArgument(arguments, 0, "sep", MarkedText(", ")));
  auto used = std::make_shared<bool>(false);
  return Value(Function{
      "joiner",
      [separator, used](Evaluator& evaluator, const Arguments& given) -> absl::StatusOr<Value> {
        PF_RETURN_IF_ERROR(given.Check(0));
        return evaluator.Text(std::exchange(*used, true) ? separator : MarkedText());
      }});
}

// cycler(a, b): `current`, next(), which gives it and goes on, and reset().
absl::StatusOr<Value> MakeCycler(Evaluator& evaluator, const Arguments& arguments) {
  if (arguments.positional.empty()) return Wrong("expected a value");
  Namespace* space = evaluator.NewNamespace();
  auto place = std::make_shared<size_t>(0);
  const auto go = [space, items = arguments.positional, place](size_t to) {
    Value value = items[*place];
    *place = to % items.size();
    space->members[0].second = items[*place];
    return value;
  };
  space->members.emplace_back("current", arguments.positional[0]);
  space->members.emplace_back(
      "next",
      Value(Function{"next", [go, place](Evaluator&, const Arguments&) -> absl::StatusOr<Value> {
                       return go(*place + 1);
                     }}));
  space->members.emplace_back(
      "reset", Value(Function{"reset", [go](Evaluator&, const Arguments&) -> absl::StatusOr<Value> {
                                go(0);
                                return Value(None());
                              }}));
  return Value(space);
}

absl::StatusOr<Value> RaiseException(Evaluator& evaluator, const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(1, {"message"}));
  const Value* message = arguments.Find(0, "message");
  if (message == nullptr) return Wrong("expected a message");
  PF_ASSIGN_OR_RETURN(const MarkedText text, message->Print(evaluator.work()));
  return evaluator.Raise(text.bytes());
}

absl::StatusOr<Value> Strftime(Evaluator& evaluator, const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(1, {"format"}));
  const Value* format = arguments.Find(0, "format");
  if (format == nullptr || !format->text()) return Wrong("expected a format");
  if (format->text()->size() > 256) return Wrong("a format of more than 256 bytes");
  const std::time_t now = evaluator.now();
  std::tm local{};
  localtime_r(&now, &local);
  char text[4096];
  // A NUL would end the format, and an empty result cannot be told from a failure.
  const std::string padded = std::string(format->text()->bytes().c_str()) + " ";
  const size_t size = std::strftime(text, sizeof(text), padded.c_str(), &local);
  if (size == 0) return Wrong("a format that gives too much text");
  return Value(std::string(text, size - 1));
}

using Call = absl::StatusOr<Value> (*)(Evaluator&, const Arguments&);

// Methods: the object is an argument of them.

absl::StatusOr<Value> DictItems(Evaluator& evaluator, const Value& object,
                                const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(0));
  return DictPairs(evaluator, *object.dict());
}

absl::StatusOr<Value> DictKeys(Evaluator& evaluator, const Value& object,
                               const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(0));
  PF_ASSIGN_OR_RETURN(List keys, evaluator.Items(object));
  return evaluator.MakeList(std::move(keys));
}

absl::StatusOr<Value> DictValues(Evaluator& evaluator, const Value& object,
                                 const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(0));
  List values;
  for (const auto& [key, value] : *object.dict()) values.push_back(value);
  return evaluator.MakeList(std::move(values));
}

absl::StatusOr<Value> DictGet(Evaluator& evaluator, const Value& object,
                              const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(2, {"key", "default"}));
  const Value* key = arguments.Find(0, "key");
  if (key == nullptr) return Wrong("expected a key");
  PF_RETURN_IF_ERROR(evaluator.Charge(object.dict()->size()));
  const Value* found = key->text() ? Lookup(*object.dict(), key->text()->bytes()) : nullptr;
  if (found) return *found;
  const Value* otherwise = arguments.Find(1, "default");
  return otherwise ? *otherwise : Value(None());
}

using Method = absl::StatusOr<Value> (*)(Evaluator&, const Value&, const Arguments&);

const std::map<std::string_view, Method>& DictMethods() {
  static const auto& methods = *new std::map<std::string_view, Method>{
      {"items", DictItems}, {"keys", DictKeys}, {"values", DictValues}, {"get", DictGet}};
  return methods;
}

}  // namespace

Value FindFunction(std::string_view name) {
  static constexpr std::pair<std::string_view, Call> kFunctions[] = {
      {"range", Range},          {"namespace", MakeNamespace}, {"dict", MakeDict},
      {"joiner", MakeJoiner},    {"cycler", MakeCycler},       {"raise_exception", RaiseException},
      {"strftime_now", Strftime}};
  for (const auto& [known, call] : kFunctions) {
    if (known == name) return Value(Function{std::string(name), call});
  }
  return Value();
}

Value FindMethod(const Value& object, const std::string& name) {
  const auto* methods = object.dict() ? &DictMethods() : object.text() ? &TextMethods() : nullptr;
  if (methods == nullptr) return Value();
  const auto found = methods->find(name);
  if (found == methods->end()) return Value();
  return Value(
      Function{name,
               [object, method = found->second](
                   Evaluator& evaluator, const Arguments& arguments) -> absl::StatusOr<Value> {
                 PF_RETURN_IF_ERROR(evaluator.ChargeRead(object, Arguments()));
                 return method(evaluator, object, arguments);
               }});
}

absl::StatusOr<Value> DictPairs(Evaluator& evaluator, const Dict& dict) {
  List pairs;
  for (const auto& [key, value] : dict) {
    PF_RETURN_IF_ERROR(evaluator.Charge(64 + key.size()));
    PF_ASSIGN_OR_RETURN(pairs.emplace_back(), Value::Tuple({Value(key), value}));
  }
  return evaluator.MakeList(std::move(pairs));
}

}  // namespace pagefuse::chat_template
