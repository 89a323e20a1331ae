// SPDX-License-Identifier: Apache-2.0
// The values of chat templates, with Python's semantics of printing, truth and equality.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

#include "pagefuse/text/template/marked_text.h"
#include "pagefuse/text/template/work.h"

namespace pagefuse::chat_template {

class Value;
using List = std::vector<Value>;
// In the order of insertion.
using Dict = std::vector<std::pair<MarkedText, Value>>;

struct Undefined {
  std::string what;  // of which nothing is known
};
struct None {};
struct Namespace;  // namespace(): the only value that changes; the evaluator owns it
struct Macro;      // of the template

// In the order in which they were set.
using NamedValues = std::vector<std::pair<std::string, Value>>;

// What a call is given.
struct Arguments {
  std::vector<Value> positional;
  NamedValues named;

  // Argument `place`, or the one called `name`; null if it is not given.
  const Value* Find(size_t place, std::string_view name) const;
  // Whether it is given, and true.
  bool IsTrue(size_t place, std::string_view name) const;
  // InvalidArgument unless there are at most so many, and no names but these.
  absl::Status Check(size_t most, std::initializer_list<std::string_view> names = {}) const;
};

class Evaluator;
// A function of the library, or a method with its object.
struct Function {
  std::string name;
  std::function<absl::StatusOr<Value>(Evaluator&, const Arguments&)> call;
};

// Cheap to copy: texts, lists and dicts are shared and never change.
class Value {
 public:
  Value() : data_(Undefined{}) {}
  explicit Value(Undefined undefined) : data_(std::move(undefined)) {}
  explicit Value(None none) : data_(none) {}
  explicit Value(bool flag) : data_(flag) {}
  explicit Value(int64_t number) : data_(number) {}
  explicit Value(double number) : data_(number) {}
  explicit Value(MarkedText text) : data_(std::make_shared<const MarkedText>(std::move(text))) {}
  explicit Value(std::string text) : Value(MarkedText(std::move(text))) {}
  explicit Value(Namespace* object) : data_(object) {}
  explicit Value(const Macro* macro) : data_(macro) {}
  explicit Value(Function function)
      : data_(std::make_shared<const Function>(std::move(function))) {}

  // Nesting deeper than this is refused: lists of lists of ... could not be freed or printed.
  static constexpr int kMaxDepth = 100;
  static absl::StatusOr<Value> Of(List list);
  static absl::StatusOr<Value> Tuple(List list);  // a list that prints as (1, 2)
  // The tuple of two that groupby gives, whose items have the names "grouper" and "list".
  static absl::StatusOr<Value> Group(Value grouper, List list);
  static absl::StatusOr<Value> Of(Dict dict);
  // Texts are the user's if `user`.
  static absl::StatusOr<Value> FromJson(const nlohmann::ordered_json& json, bool user,
                                        int depth = 0);

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_number() const { return number().has_value(); }
  bool is_float() const { return std::holds_alternative<double>(data_); }

  // Null or nothing for values of another kind.
  const Undefined* undefined() const { return std::get_if<Undefined>(&data_); }
  const bool* flag() const { return std::get_if<bool>(&data_); }
  std::optional<int64_t> integer() const;  // true is 1
  std::optional<double> number() const;
  const MarkedText* text() const { return Shared<MarkedText>(); }
  const List* list() const;  // of a tuple, too
  bool is_tuple() const;
  bool is_group() const;
  const Dict* dict() const;
  Namespace* name_space() const;
  const Macro* macro() const;
  const Function* function() const { return Shared<Function>(); }

  // What `{% if %}` takes it for.
  bool IsTrue() const;
  // "a list", for errors.
  std::string KindName() const;
  // As str() and, in lists and dicts, repr() print it. Nothing for what has no text; ResourceExhausted.
  absl::StatusOr<MarkedText> Print(Work& work) const;
  // As repr() prints it.
  absl::StatusOr<MarkedText> Repr(Work& work) const;
  // As json.dumps(..., ensure_ascii=False).
  struct JsonOptions {
    std::optional<int64_t> indent = {};
    std::string item_separator = ", ", key_separator = ": ";
    bool ascii = false, sorted = false;
  };
  absl::StatusOr<MarkedText> ToJson(Work& work, const JsonOptions& options) const;

 private:
  enum class ListKind { kList, kTuple, kGroup };
  struct Nested {
    std::variant<List, Dict> items;
    int depth = 1;
    ListKind kind = ListKind::kList;
  };
  template <typename T>
  const T* Shared() const {
    const auto* pointer = std::get_if<std::shared_ptr<const T>>(&data_);
    return pointer ? pointer->get() : nullptr;
  }
  static absl::StatusOr<Value> OfNested(std::variant<List, Dict> items, int depth,
                                        ListKind kind = ListKind::kList);
  static int DepthOf(const List& list);
  int depth() const;

  std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const MarkedText>,
               std::shared_ptr<const Nested>, Namespace*, const Macro*,
               std::shared_ptr<const Function>>
      data_;
};

struct Namespace {
  NamedValues members;
};

// Both walk through lists: ResourceExhausted where that is too much work.
absl::StatusOr<bool> Equal(Work& work, const Value& a, const Value& b);
// Below 0, 0 or above 0; nothing for values that have no order.
absl::StatusOr<std::optional<int>> Compare(Work& work, const Value& a, const Value& b);
// The value of a key or a name; null if there is none.
const Value* Lookup(const Dict& dict, std::string_view key);
const Value* Lookup(const NamedValues& values, std::string_view name);
// In place of the one of that name, or behind all.
void SetNamed(NamedValues& values, std::string_view name, Value value);

}  // namespace pagefuse::chat_template
