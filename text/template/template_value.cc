// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/template/template_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "absl/strings/str_format.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/text/tokenizer/unicode_classes.h"
#include "pagefuse/text/utf8.h"

namespace pagefuse::chat_template {
namespace {

// repr() of a float: the shortest digits that read back, with an exponent below 1e-4 and from 1e16.
std::string FloatText(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  const double size = std::abs(number);
  char buffer[64];
  const bool plain = size == 0 || (size >= 1e-4 && size < 1e16);
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), number,
                                 plain ? std::chars_format::fixed : std::chars_format::scientific);
  std::string text(buffer, end.ptr);
  if (plain && text.find('.') == std::string::npos) text += ".0";
  return text;
}

char Escape(char c) {
  static constexpr std::string_view kPlain = "\n\r\t\b\f", kLetters = "nrtbf";
  const size_t place = kPlain.find(c);
  return place == std::string_view::npos ? '\0' : kLetters[place];
}

// str.isprintable(): no control characters, unassigned ones or spaces but " ".
bool IsPrintable(char32_t point) {
  static const CodePointSet& others = *[] {
    auto* set = new CodePointSet(*CategorySet("C"));
    set->Add(*CategorySet("Z"));
    return set;
  }();
  return point < 0x7F ? point >= 0x20 : !others.Contains(point);
}

std::string HexEscape(char32_t point) {
  const auto number = static_cast<unsigned>(point);
  if (point < 0x100) return absl::StrFormat("\\x%02x", number);
  return point < 0x10000 ? absl::StrFormat("\\u%04x", number) : absl::StrFormat("\\U%08x", number);
}

// repr() of a string: single quotes unless only those occur in it.
std::string TextRepr(std::string_view text) {
  const bool single = text.find('\'') != std::string_view::npos;
  const char quote = single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const size_t first = at;
    const char32_t point = NextCodePoint(text, at);
    const char c = text[first];
    if (c == quote || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += '\\';
      out += Escape(c);
    } else if (!IsPrintable(point)) {
      out += HexEscape(point);
    } else {
      out += text.substr(first, at - first);
    }
  }
  return out + quote;
}

void AppendUtf16(char32_t point, std::string& out) {
  if (point < 0x10000) {
    out += absl::StrFormat("\\u%04x", static_cast<unsigned>(point));
    return;
  }
  point -= 0x10000;
  out += absl::StrFormat("\\u%04x\\u%04x", static_cast<unsigned>(0xD800 | point >> 10),
                         static_cast<unsigned>(0xDC00 | (point & 0x3FF)));
}

std::string JsonTextOf(std::string_view text, bool ascii) {
  std::string out = "\"";
  for (size_t at = 0; at < text.size();) {
    const size_t first = at;
    const char32_t point = NextCodePoint(text, at);
    const char escape = point < 0x80 ? Escape(static_cast<char>(point)) : '\0';
    if (point == '"' || point == '\\') {
      out += '\\';
      out += static_cast<char>(point);
    } else if (escape != '\0') {
      out += '\\';
      out += escape;
    } else if (point < 0x20 || (ascii && point >= 0x7F && point != 0x7F)) {
      AppendUtf16(point, out);
    } else {
      out += text.substr(first, at - first);
    }
  }
  return out + "\"";
}

// What the text of a list or dict is made of.
class Printer {
 public:
  explicit Printer(const Value::JsonOptions* json) : json_(json) {}

  absl::Status Print(const Value& value) {
    if (const MarkedText* text = value.text()) return Append(*text);
    if (value.list()) return PrintList(value);
    if (const Dict* dict = value.dict()) return PrintDict(*dict);
    return PrintSimple(value);
  }

  absl::StatusOr<MarkedText> Take(Work& work) {
    PF_RETURN_IF_ERROR(work.Charge(out_.size()));
    return user_ ? MarkedText::OfUser(std::move(out_)) : MarkedText(std::move(out_));
  }

 private:
  // All that is printed comes through here: every value prints something, so that what a walk may
  // print limits how long it takes.
  absl::Status Put(std::string_view text) {
    if (text.size() > Work::kMaxBytes - out_.size()) return Work::TooLong();
    out_ += text;
    return absl::OkStatus();
  }

  absl::Status Append(const MarkedText& text) {
    user_ = user_ || !text.user().empty();
    return Put(json_ ? JsonTextOf(text.bytes(), json_->ascii) : TextRepr(text.bytes()));
  }

  absl::Status PrintSimple(const Value& value) {
    if (value.is_none()) return Put(json_ ? "null" : "None");
    if (const bool* flag = value.flag()) {
      return Put(json_ ? (*flag ? "true" : "false") : (*flag ? "True" : "False"));
    }
    if (value.is_float()) return Put(FloatText(*value.number()));
    if (const auto integer = value.integer()) return Put(StrCat(*integer));
    return absl::InvalidArgumentError(
        StrCat(value.KindName(), " cannot be ", json_ ? "JSON" : "printed"));
  }

  absl::Status Separate(bool first) {
    if (!first) PF_RETURN_IF_ERROR(Put(json_ ? json_->item_separator : ", "));
    return Indent();
  }
  absl::Status Indent() {
    if (!json_ || !json_->indent) return absl::OkStatus();
    std::string line(1, '\n');
    line.append(static_cast<size_t>(depth_ * *json_->indent), ' ');
    return Put(line);
  }
  absl::Status Enter() {
    ++depth_;
    return json_ && json_->indent && depth_ * *json_->indent > 10000
               ? absl::InvalidArgumentError("tojson: indented too far")
               : absl::OkStatus();
  }

  absl::Status PrintList(const Value& value) {
    const List& list = *value.list();
    const bool tuple = value.is_tuple() && json_ == nullptr;
    PF_RETURN_IF_ERROR(Put(tuple ? "(" : "["));
    PF_RETURN_IF_ERROR(Enter());
    for (size_t i = 0; i < list.size(); ++i) {
      PF_RETURN_IF_ERROR(Separate(i == 0));
      PF_RETURN_IF_ERROR(Print(list[i]));
    }
    --depth_;
    if (!list.empty()) PF_RETURN_IF_ERROR(Indent());
    if (tuple && list.size() == 1) PF_RETURN_IF_ERROR(Put(","));
    return Put(tuple ? ")" : "]");
  }

  absl::Status PrintDict(const Dict& dict) {
    std::vector<const std::pair<MarkedText, Value>*> items;
    for (const auto& item : dict) items.push_back(&item);
    if (json_ && json_->sorted) {
      std::ranges::stable_sort(
          items, [](const auto* a, const auto* b) { return a->first.bytes() < b->first.bytes(); });
    }
    PF_RETURN_IF_ERROR(Put("{"));
    PF_RETURN_IF_ERROR(Enter());
    for (size_t i = 0; i < items.size(); ++i) {
      PF_RETURN_IF_ERROR(Separate(i == 0));
      PF_RETURN_IF_ERROR(Append(items[i]->first));
      PF_RETURN_IF_ERROR(Put(json_ ? json_->key_separator : ": "));
      PF_RETURN_IF_ERROR(Print(items[i]->second));
    }
    --depth_;
    if (!items.empty()) PF_RETURN_IF_ERROR(Indent());
    return Put("}");
  }

  const Value::JsonOptions* json_;  // null: as repr()
  std::string out_;
  bool user_ = false;
  int64_t depth_ = 0;
};

}  // namespace

const Value* Arguments::Find(size_t place, std::string_view name) const {
  if (place < positional.size()) return &positional[place];
  return Lookup(named, name);
}

bool Arguments::IsTrue(size_t place, std::string_view name) const {
  const Value* value = Find(place, name);
  return value && value->IsTrue();
}

absl::Status Arguments::Check(size_t most, std::initializer_list<std::string_view> names) const {
  if (positional.size() > most) {
    return absl::InvalidArgumentError(
        StrCat("expected ", most, " arguments at most, got ", positional.size()));
  }
  for (const auto& [name, value] : named) {
    if (std::ranges::find(names, name) == names.end()) {
      return absl::InvalidArgumentError(StrCat("no argument is called \"", name, "\""));
    }
  }
  return absl::OkStatus();
}

namespace {

absl::Status NestedTooDeeply() {
  return absl::ResourceExhaustedError(
      StrCat("values nested more than ", Value::kMaxDepth, " deep"));
}

}  // namespace

absl::StatusOr<Value> Value::OfNested(std::variant<List, Dict> items, int depth, ListKind kind) {
  if (depth > kMaxDepth) return NestedTooDeeply();
  Value value;
  value.data_ = std::make_shared<const Nested>(Nested{std::move(items), depth, kind});
  return value;
}

int Value::DepthOf(const List& list) {
  int deepest = 0;
  for (const Value& item : list) deepest = std::max(deepest, item.depth());
  return deepest + 1;
}

absl::StatusOr<Value> Value::Of(List list) {
  const int depth = DepthOf(list);
  return OfNested(std::move(list), depth);
}

absl::StatusOr<Value> Value::Tuple(List list) {
  const int depth = DepthOf(list);
  return OfNested(std::move(list), depth, ListKind::kTuple);
}

absl::StatusOr<Value> Value::Group(Value grouper, List list) {
  PF_ASSIGN_OR_RETURN(Value members, Of(std::move(list)));
  List pair = {std::move(grouper), std::move(members)};
  const int depth = DepthOf(pair);
  return OfNested(std::move(pair), depth, ListKind::kGroup);
}

absl::StatusOr<Value> Value::Of(Dict dict) {
  int deepest = 0;
  for (const auto& [key, value] : dict) deepest = std::max(deepest, value.depth());
  return OfNested(std::move(dict), deepest + 1);
}

int Value::depth() const {
  const Nested* nested = Shared<Nested>();
  return nested ? nested->depth : 0;
}

absl::StatusOr<Value> Value::FromJson(const nlohmann::ordered_json& json, bool user, int depth) {
  if (depth > kMaxDepth) return NestedTooDeeply();
  const auto text = [user](std::string bytes) {
    return user ? MarkedText::OfUser(std::move(bytes)) : MarkedText(std::move(bytes));
  };
  if (json.is_null()) return Value(None());
  if (json.is_boolean()) return Value(json.get<bool>());
  if (json.is_string()) return Value(text(ReplaceBrokenUtf8(json.get<std::string>())));
  if (json.is_number_float()) return Value(json.get<double>());
  if (json.is_number_unsigned() && json.get<uint64_t>() > INT64_MAX) {
    return Value(json.get<double>());
  }
  if (json.is_number()) return Value(json.get<int64_t>());
  if (json.is_array()) {
    List list;
    for (const auto& item : json) {
      PF_ASSIGN_OR_RETURN(list.emplace_back(), FromJson(item, user, depth + 1));
    }
    return Of(std::move(list));
  }
  Dict dict;
  for (const auto& [key, item] : json.items()) {
    PF_ASSIGN_OR_RETURN(Value value, FromJson(item, user, depth + 1));
    dict.emplace_back(text(ReplaceBrokenUtf8(key)), std::move(value));
  }
  return Of(std::move(dict));
}

std::optional<int64_t> Value::integer() const {
  if (const bool* flag = std::get_if<bool>(&data_)) return *flag;
  const auto* number = std::get_if<int64_t>(&data_);
  return number ? std::optional(*number) : std::nullopt;
}

std::optional<double> Value::number() const {
  if (const auto* real = std::get_if<double>(&data_)) return *real;
  const auto whole = integer();
  return whole ? std::optional(static_cast<double>(*whole)) : std::nullopt;
}

const List* Value::list() const {
  const Nested* nested = Shared<Nested>();
  return nested ? std::get_if<List>(&nested->items) : nullptr;
}

const Dict* Value::dict() const {
  const Nested* nested = Shared<Nested>();
  return nested ? std::get_if<Dict>(&nested->items) : nullptr;
}

bool Value::is_tuple() const {
  const Nested* nested = Shared<Nested>();
  return nested && nested->kind != ListKind::kList;
}

bool Value::is_group() const {
  const Nested* nested = Shared<Nested>();
  return nested && nested->kind == ListKind::kGroup;
}

Namespace* Value::name_space() const {
  auto* const* pointer = std::get_if<Namespace*>(&data_);
  return pointer ? *pointer : nullptr;
}

const Macro* Value::macro() const {
  const auto* pointer = std::get_if<const Macro*>(&data_);
  return pointer ? *pointer : nullptr;
}

bool Value::IsTrue() const {
  if (const auto real = number()) return *real != 0;
  if (const MarkedText* text = this->text()) return text->size() > 0;
  if (const List* list = this->list()) return !list->empty();
  if (const Dict* dict = this->dict()) return !dict->empty();
  return !is_undefined() && !is_none();
}

std::string Value::KindName() const {
  static constexpr const char* kNames[] = {
      "an undefined value", "none",           "a boolean",   "an integer", "a float",
      "a string",           "a list or dict", "a namespace", "a macro",    "a function"};
  if (list()) return is_tuple() ? "a tuple" : "a list";
  if (dict()) return "a dict";
  return kNames[data_.index()];
}

absl::StatusOr<MarkedText> Value::Print(Work& work) const {
  if (const MarkedText* text = this->text()) {
    PF_RETURN_IF_ERROR(work.ChargeRead(text->size()));
    return *text;
  }
  return is_undefined() ? MarkedText() : Repr(work);
}

absl::StatusOr<MarkedText> Value::Repr(Work& work) const {
  Printer printer(nullptr);
  PF_RETURN_IF_ERROR(printer.Print(*this));
  return printer.Take(work);
}

absl::StatusOr<MarkedText> Value::ToJson(Work& work, const JsonOptions& options) const {
  Printer printer(&options);
  PF_RETURN_IF_ERROR(printer.Print(*this));
  return printer.Take(work);
}

const Value* Lookup(const Dict& dict, std::string_view key) {
  for (const auto& [name, value] : dict) {
    if (name.bytes() == key) return &value;
  }
  return nullptr;
}

const Value* Lookup(const NamedValues& values, std::string_view name) {
  const auto found = std::ranges::find(values, name, &NamedValues::value_type::first);
  return found == values.end() ? nullptr : &found->second;
}

void SetNamed(NamedValues& values, std::string_view name, Value value) {
  const auto old = std::ranges::find(values, name, &NamedValues::value_type::first);
  if (old == values.end()) {
    values.emplace_back(name, std::move(value));
  } else {
    old->second = std::move(value);
  }
}

}  // namespace pagefuse::chat_template
