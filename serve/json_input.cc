// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/serve/json_input.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse::serve {
namespace {

using Json = nlohmann::ordered_json;

// Lists and objects are built in place: `open_` are those that are not closed, outermost first.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(const JsonLimits& limits) : limits_(limits) {}

  bool null() override { return Put(Json()); }
  bool boolean(bool value) override { return Put(value); }
  bool number_integer(number_integer_t value) override { return Put(value); }
  bool number_unsigned(number_unsigned_t value) override { return Put(value); }
  bool number_float(number_float_t value, const string_t&) override { return Put(value); }
  bool string(string_t& value) override { return Put(std::move(value)); }
  bool binary(binary_t&) override { return Fail("binary"); }
  bool start_object(size_t) override {
    if (!Open(Json::object())) return false;
    open_.back().names.emplace();
    return true;
  }
  bool start_array(size_t) override { return Open(Json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(string_t& name) override {
    if (!Count()) return false;
    if (!open_.back().names->insert(name).second) {
      return Fail(StrCat("the name \"", name, "\" is there twice"));
    }
    name_ = std::move(name);
    return true;
  }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    position_ = position;
    const std::string_view what = error.what();
    // "[json.exception.parse_error.101] parse error at line 1, column 2: the reason", or without a place
    size_t reason = what.find(": ");
    if (reason == std::string_view::npos) reason = what.find("] ");
    return Fail(reason == std::string_view::npos ? what : what.substr(reason + 2));
  }

  const std::string& error() const { return error_; }
  // Of the error, where the parser tells.
  size_t position() const { return position_; }
  Json Take() { return std::move(root_); }

 private:
  struct Level {
    Json* value;
    std::optional<absl::flat_hash_set<std::string>> names;  // of an object
  };

  bool Fail(std::string_view what) {
    if (error_.empty()) error_ = std::string(what);
    return false;
  }
  bool Count() {
    return ++count_ <= limits_.values || Fail(StrCat("more than ", limits_.values, " values"));
  }
  Json* Place(Json value) {
    if (open_.empty()) return &(root_ = std::move(value));
    Json& parent = *open_.back().value;
    if (parent.is_array()) return &parent.get_ref<Json::array_t&>().emplace_back(std::move(value));
    // The name is new: no search through those that are there.
    auto& members = static_cast<std::vector<std::pair<const std::string, Json>>&>(
        parent.get_ref<Json::object_t&>());
    return &members.emplace_back(std::move(name_), std::move(value)).second;
  }
  bool Put(Json value) {
    if (!Count()) return false;
    Place(std::move(value));
    return true;
  }
  bool Open(Json value) {
    if (!Count()) return false;
    if (open_.size() >= limits_.depth) {
      return Fail(StrCat("nested deeper than ", limits_.depth, " levels"));
    }
    open_.push_back({Place(std::move(value)), std::nullopt});
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }

  JsonLimits limits_;
  Json root_;
  std::vector<Level> open_;
  std::string name_, error_;
  size_t count_ = 0, position_ = 0;
};

std::string PlaceIn(std::string_view text, size_t position) {
  size_t line = 1, column = 1;
  for (const char c : text.substr(0, position)) {
    column = c == '\n' ? 1 : column + 1;
    line += c == '\n' ? 1 : 0;
  }
  return StrCat("line ", line, ", column ", column);
}

// Counts what the parser has taken, since its events do not tell where they are.
class Counted {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Counted(const char* at, const char** last) : at_(at), last_(last) {}
  reference operator*() const { return *at_; }
  Counted& operator++() {
    *last_ = ++at_;
    return *this;
  }
  Counted operator++(int) {
    Counted old = *this;
    ++*this;
    return old;
  }
  bool operator==(const Counted& other) const { return at_ == other.at_; }
  bool operator!=(const Counted& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** last_;
};

}  // namespace

absl::StatusOr<nlohmann::ordered_json> ParseJson(std::string_view text, const JsonLimits& limits) {
  Builder builder(limits);
  const char* last = text.data();
  const bool read = Json::sax_parse(Counted(text.data(), &last),
                                    Counted(text.data() + text.size(), &last), &builder);
  // The parser takes a NUL for the end of the text.
  const size_t nul = text.find('\0');
  if (read && nul != std::string_view::npos) {
    return absl::InvalidArgumentError(StrCat("JSON: ", PlaceIn(text, nul), ": a NUL"));
  }
  if (read && builder.error().empty()) return builder.Take();
  const auto taken = static_cast<size_t>(last - text.data());
  const size_t position =
      std::max<size_t>(builder.position() > 0 ? builder.position() : taken, 1) - 1;
  return absl::InvalidArgumentError(
      StrCat("JSON: ", PlaceIn(text, position), ": ", builder.error()));
}

}  // namespace pagefuse::serve
