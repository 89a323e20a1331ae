// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/template/text_methods.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/text/find_text.h"
#include "pagefuse/text/template/template_text.h"
#include "pagefuse/text/tokenizer/unicode_classes.h"
#include "pagefuse/text/utf8.h"

namespace pagefuse::chat_template {
namespace {

// `text` without white space, or the characters in `chars`, at its ends.
MarkedText Stripped(const MarkedText& text, const MarkedText* chars, bool left, bool right) {
  const std::string_view bytes = text.bytes();
  size_t first = 0, end = bytes.size();
  if (chars == nullptr) {
    if (right) end = TrimmedEnd(bytes);
    if (left) first = std::min(LeadingSpace(bytes), end);
    return text.Substr(first, end);
  }
  absl::flat_hash_set<std::string_view> characters;
  const std::string_view listed = chars->bytes();
  const std::vector<size_t> each = CharacterStarts(listed);
  for (size_t i = 0; i + 1 < each.size(); ++i) {
    characters.insert(listed.substr(each[i], each[i + 1] - each[i]));
  }
  const auto stripped = [&](size_t from, size_t to) {
    return characters.contains(bytes.substr(from, to - from));
  };
  const std::vector<size_t> starts = CharacterStarts(bytes);
  size_t begin = 0, stop = starts.size() - 1;
  while (left && begin < stop && stripped(starts[begin], starts[begin + 1])) ++begin;
  while (right && stop > begin && stripped(starts[stop - 1], starts[stop])) --stop;
  return text.Substr(starts[begin], starts[stop]);
}

// strip, lstrip, rstrip
template <bool left, bool right>
absl::StatusOr<Value> Strip(Evaluator& evaluator, const Value& object, const Arguments& arguments) {
  return StripText(evaluator, *object.text(), arguments, left, right);
}

template <std::string (*map)(std::string_view)>
absl::StatusOr<Value> Mapped(Evaluator& evaluator, const Value& object,
                             const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(0));
  return evaluator.Text(object.text()->Computed(map(object.text()->bytes())));
}

// startswith and endswith take one text or a list of them.
template <bool at_end>
absl::StatusOr<Value> HasAtEdge(Evaluator& evaluator, const Value& object,
                                const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(1));
  if (arguments.positional.empty()) return Wrong("expected a string");
  const Value& wanted = arguments.positional[0];
  if (wanted.list()) PF_RETURN_IF_ERROR(evaluator.Charge(wanted.list()->size()));
  const List list = wanted.list() ? *wanted.list() : List{wanted};
  const std::string& text = object.text()->bytes();
  bool found = false;
  for (const Value& item : list) {
    if (!item.text()) return Wrong(StrCat("expected a string, got ", item.KindName()));
    found = found || (at_end ? text.ends_with(item.text()->bytes())
                             : text.starts_with(item.text()->bytes()));
  }
  return Value(found);
}

// Pieces of a text, charged one by one.
class Pieces {
 public:
  Pieces(Evaluator& evaluator, const MarkedText& text) : evaluator_(evaluator), text_(text) {}
  absl::Status Add(size_t first, size_t end) {
    PF_RETURN_IF_ERROR(evaluator_.Charge(end - first));
    list_.emplace_back(text_.Substr(first, end));
    return absl::OkStatus();
  }
  List& list() { return list_; }
  absl::StatusOr<Value> Take() { return Value::Of(std::move(list_)); }

 private:
  Evaluator& evaluator_;
  const MarkedText& text_;
  List list_;
};

absl::StatusOr<Value> SplitAtSpace(Evaluator& evaluator, const MarkedText& text, int64_t most) {
  Pieces pieces(evaluator, text);
  const std::string_view bytes = text.bytes();
  size_t at = LeadingSpace(bytes);
  while (at < bytes.size()) {
    size_t end = at;
    while (end < bytes.size() && LeadingSpace(bytes.substr(end)) == 0)
      end += FrontOfUtf8(bytes.substr(end)).bytes;
    if (most == 0) end = TrimmedEnd(bytes);
    if (most > 0) --most;
    PF_RETURN_IF_ERROR(pieces.Add(at, end));
    at = end + LeadingSpace(bytes.substr(end));
  }
  return pieces.Take();
}

absl::StatusOr<Value> Split(Evaluator& evaluator, const Value& object, const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(2, {"sep", "maxsplit"}));
  PF_ASSIGN_OR_RETURN(int64_t most, IntegerArgument(arguments, 1, "maxsplit", -1));
  const MarkedText& text = *object.text();
  const Value* given = arguments.Find(0, "sep");
  if (given == nullptr || given->is_none()) return SplitAtSpace(evaluator, text, most);
  PF_ASSIGN_OR_RETURN(const MarkedText separator, TextArgument(arguments, 0, "sep"));
  if (separator.size() == 0) return Wrong("an empty separator");
  Pieces pieces(evaluator, text);
  size_t at = 0;
  for (size_t end;
       most != 0 && (end = FindText(text.bytes(), separator.bytes(), at)) != std::string::npos;
       --most) {
    PF_RETURN_IF_ERROR(pieces.Add(at, end));
    at = end + separator.size();
  }
  PF_RETURN_IF_ERROR(pieces.Add(at, text.size()));
  return pieces.Take();
}

absl::StatusOr<Value> RightSplit(Evaluator& evaluator, const Value& object,
                                 const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(2, {"sep", "maxsplit"}));
  PF_ASSIGN_OR_RETURN(int64_t most, IntegerArgument(arguments, 1, "maxsplit", -1));
  PF_ASSIGN_OR_RETURN(const MarkedText separator, TextArgument(arguments, 0, "sep"));
  if (separator.size() == 0) return Wrong("an empty separator");
  const MarkedText& text = *object.text();
  Pieces pieces(evaluator, text);
  // Searched from its end, as the text backwards.
  const std::string backwards(text.bytes().rbegin(), text.bytes().rend());
  const std::string wanted(separator.bytes().rbegin(), separator.bytes().rend());
  size_t end = text.size();
  for (; most != 0; --most) {
    const size_t behind = FindText(backwards, wanted, text.size() - end);
    if (behind == std::string::npos) break;
    PF_RETURN_IF_ERROR(pieces.Add(text.size() - behind, end));
    end = text.size() - behind - separator.size();
  }
  PF_RETURN_IF_ERROR(pieces.Add(0, end));
  std::reverse(pieces.list().begin(), pieces.list().end());
  return pieces.Take();
}

absl::StatusOr<Value> SplitLines(Evaluator& evaluator, const Value& object,
                                 const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(0));
  const std::string& bytes = object.text()->bytes();
  Pieces pieces(evaluator, *object.text());
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = std::min(bytes.find_first_of("\n\r", at), bytes.size());
    PF_RETURN_IF_ERROR(pieces.Add(at, end));
    at = end + (bytes.compare(end, 2, "\r\n") == 0 ? 2 : 1);
  }
  return pieces.Take();
}

absl::StatusOr<Value> Replace(Evaluator& evaluator, const Value& object,
                              const Arguments& arguments) {
  return ReplaceText(evaluator, *object.text(), arguments);
}

absl::StatusOr<Value> Join(Evaluator& evaluator, const Value& object, const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(1));
  if (arguments.positional.empty()) return Wrong("expected a list");
  PF_ASSIGN_OR_RETURN(const List items, evaluator.Items(arguments.positional[0]));
  MarkedText text;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].text()) return Wrong(StrCat("expected strings, got ", items[i].KindName()));
    if (i > 0) PF_RETURN_IF_ERROR(evaluator.Append(text, *object.text()));
    PF_RETURN_IF_ERROR(evaluator.Append(text, *items[i].text()));
  }
  return Value(std::move(text));
}

// find and count, in characters
absl::StatusOr<Value> Find(Evaluator&, const Value& object, const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(1));
  PF_ASSIGN_OR_RETURN(const MarkedText wanted, TextArgument(arguments, 0, ""));
  const std::string_view bytes = object.text()->bytes();
  const size_t at = FindText(bytes, wanted.bytes());
  if (at == std::string_view::npos) return Value(int64_t{-1});
  return Value(static_cast<int64_t>(CharacterCount(bytes.substr(0, at))));
}

absl::StatusOr<Value> FindLast(Evaluator& evaluator, const Value& object,
                               const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(1));
  PF_ASSIGN_OR_RETURN(const MarkedText wanted, TextArgument(arguments, 0, ""));
  const std::string& bytes = object.text()->bytes();
  PF_RETURN_IF_ERROR(evaluator.Charge(bytes.size()));
  const size_t at = FindLastText(bytes, wanted.bytes());
  if (at == std::string::npos) return Value(int64_t{-1});
  return Value(static_cast<int64_t>(CharacterCount(std::string_view(bytes).substr(0, at))));
}

absl::StatusOr<Value> Index(Evaluator& evaluator, const Value& object, const Arguments& arguments) {
  PF_ASSIGN_OR_RETURN(const Value place, Find(evaluator, object, arguments));
  if (*place.integer() < 0) return Wrong("the string is not there");
  return place;
}

absl::StatusOr<Value> Count(Evaluator&, const Value& object, const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(1));
  PF_ASSIGN_OR_RETURN(const MarkedText wanted, TextArgument(arguments, 0, ""));
  const std::string& bytes = object.text()->bytes();
  if (wanted.size() == 0) return Value(static_cast<int64_t>(CharacterCount(bytes) + 1));
  int64_t count = 0;
  for (size_t at = 0; (at = FindText(bytes, wanted.bytes(), at)) != std::string::npos;
       at += wanted.size())
    ++count;
  return Value(count);
}

template <bool (*holds)(char32_t)>
absl::StatusOr<Value> AllAre(Evaluator& evaluator, const Value& object,
                             const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(0));
  PF_RETURN_IF_ERROR(evaluator.Charge(object.text()->size()));
  const std::string& bytes = object.text()->bytes();
  for (size_t at = 0; at < bytes.size();) {
    if (!holds(NextCodePoint(bytes, at))) return Value(false);
  }
  return Value(!bytes.empty());
}

// islower, isupper: there is a letter that has a case, and all of them have this one.
template <std::string (*map)(std::string_view)>
absl::StatusOr<Value> HasCase(Evaluator& evaluator, const Value& object,
                              const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(0));
  PF_RETURN_IF_ERROR(evaluator.Charge(object.text()->size()));
  const std::string& bytes = object.text()->bytes();
  return Value(map(bytes) == bytes && Lower(bytes) != Upper(bytes));
}

const CodePointSet& Category(std::string_view name) {
  static const auto& sets = *new std::map<std::string_view, CodePointSet>{
      {"L", *CategorySet("L")}, {"Nd", *CategorySet("Nd")}, {"N", *CategorySet("N")}};
  return sets.at(name);
}
bool IsLetter(char32_t point) { return Category("L").Contains(point); }
bool IsDigit(char32_t point) { return Category("Nd").Contains(point); }
bool IsNumeric(char32_t point) { return Category("N").Contains(point); }
bool IsAlnum(char32_t point) { return IsLetter(point) || IsDigit(point); }
bool IsSpace(char32_t point) {
  std::string text;
  AppendCodePoint(&text, point);
  return LeadingSpace(text) > 0;
}

}  // namespace

const TextMethodTable& TextMethods() {
  static const auto& methods = *new TextMethodTable([] {
    TextMethodTable all = PaddingMethods();
    all.insert({{"strip", Strip<true, true>},
                {"lstrip", Strip<true, false>},
                {"rstrip", Strip<false, true>},
                {"upper", Mapped<Upper>},
                {"lower", Mapped<Lower>},
                {"title", Mapped<Titled>},
                {"capitalize", Mapped<Capitalized>},
                {"startswith", HasAtEdge<false>},
                {"endswith", HasAtEdge<true>},
                {"split", Split},
                {"rsplit", RightSplit},
                {"splitlines", SplitLines},
                {"replace", Replace},
                {"join", Join},
                {"find", Find},
                {"count", Count},
                {"isalpha", AllAre<IsLetter>},
                {"isdigit", AllAre<IsDigit>},
                {"isalnum", AllAre<IsAlnum>},
                {"isspace", AllAre<IsSpace>},
                {"isnumeric", AllAre<IsNumeric>},
                {"isdecimal", AllAre<IsDigit>},
                {"islower", HasCase<Lower>},
                {"isupper", HasCase<Upper>},
                {"casefold", Mapped<Lower>},
                {"rfind", FindLast},
                {"index", Index}});
    return all;
  }());
  return methods;
}

absl::StatusOr<MarkedText> TextArgument(const Arguments& arguments, size_t place,
                                        std::string_view name,
                                        std::optional<MarkedText> otherwise) {
  const Value* value = arguments.Find(place, name);
  const bool given = value && !value->is_none();
  if (!given && otherwise) return *std::move(otherwise);
  if (value && value->text()) return *value->text();
  return Wrong(StrCat("expected a string", value ? StrCat(", got ", value->KindName()) : ""));
}

absl::StatusOr<int64_t> IntegerArgument(const Arguments& arguments, size_t place,
                                        std::string_view name, int64_t otherwise) {
  const Value* value = arguments.Find(place, name);
  if (value == nullptr || value->is_none()) return otherwise;
  if (!value->integer()) return Wrong(StrCat("expected an integer, got ", value->KindName()));
  return *value->integer();
}

absl::StatusOr<Value> StripText(Evaluator& evaluator, const MarkedText& text,
                                const Arguments& arguments, bool left, bool right) {
  PF_RETURN_IF_ERROR(arguments.Check(1, {"chars"}));
  const Value* chars = arguments.Find(0, "chars");
  const bool given = chars && !chars->is_none();
  if (given && !chars->text()) return Wrong(StrCat("expected a string, got ", chars->KindName()));
  return evaluator.Text(Stripped(text, given ? chars->text() : nullptr, left, right));
}

absl::StatusOr<Value> ReplaceText(Evaluator& evaluator, const MarkedText& text,
                                  const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(3, {"old", "new", "count"}));
  PF_ASSIGN_OR_RETURN(const MarkedText old, TextArgument(arguments, 0, "old"));
  PF_ASSIGN_OR_RETURN(const MarkedText content, TextArgument(arguments, 1, "new"));
  PF_ASSIGN_OR_RETURN(int64_t most, IntegerArgument(arguments, 2, "count", -1));
  MarkedText out;
  size_t copied = 0;
  const auto put = [&](size_t at, size_t end) -> absl::Status {
    PF_RETURN_IF_ERROR(evaluator.Append(out, text.Substr(copied, at)));
    PF_RETURN_IF_ERROR(evaluator.Append(out, content));
    copied = end;
    return absl::OkStatus();
  };
  if (old.size() == 0) {
    // Between all characters, and at both ends.
    for (size_t at : CharacterStarts(text.bytes())) {
      if (most-- == 0) break;
      PF_RETURN_IF_ERROR(put(at, at));
    }
  } else {
    for (size_t at = 0;
         most != 0 && (at = FindText(text.bytes(), old.bytes(), at)) != std::string::npos; --most) {
      PF_RETURN_IF_ERROR(put(at, at + old.size()));
      at = copied;
    }
  }
  out.Append(text.Substr(copied, text.size()));
  return evaluator.Text(std::move(out));
}

absl::StatusOr<Value> Slice(Evaluator& evaluator, const Value& value,
                            const std::array<std::optional<int64_t>, 3>& bounds) {
  if (value.undefined()) return Wrong(value.undefined()->what);
  if (!value.text() && !value.list()) return Wrong(StrCat(value.KindName(), " has no slices"));
  std::vector<size_t> starts;
  if (value.text()) {
    PF_RETURN_IF_ERROR(evaluator.Charge(value.text()->size()));
    starts = CharacterStarts(value.text()->bytes());
  }
  const auto size = static_cast<int64_t>(value.text() ? starts.size() - 1 : value.list()->size());
  const int64_t step = bounds[2].value_or(1);
  if (step == 0) return Wrong("a slice: expected a step, got 0");
  // As slice.indices() of Python.
  const int64_t least = step > 0 ? 0 : -1, most = step > 0 ? size : size - 1;
  const auto place = [&](const std::optional<int64_t>& bound, int64_t otherwise) {
    if (!bound) return otherwise;
    return std::clamp(*bound < 0 ? std::max(*bound, -size - 1) + size : *bound, least, most);
  };
  const int64_t first = place(bounds[0], step > 0 ? 0 : size - 1);
  const int64_t end = place(bounds[1], step > 0 ? size : -1);
  MarkedText text;
  List list;
  for (int64_t at = first; step > 0 ? at < end : at > end;) {
    PF_RETURN_IF_ERROR(evaluator.Charge(value.text() && step == 1 ? 0 : 1));
    if (value.text() && step == 1) {
      return evaluator.Text(value.text()->Substr(starts[at], starts[end]));
    }
    value.text() ? text.Append(value.text()->Substr(starts[at], starts[at + 1]))
                 : list.push_back((*value.list())[at]);
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return value.text() ? Value(std::move(text)) : Value::Of(std::move(list));
}

}  // namespace pagefuse::chat_template
