// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/template/template_format.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/text/template/number_layout.h"
#include "pagefuse/text/utf8.h"

namespace pagefuse::chat_template {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsOneOf(char c, std::string_view all) { return c != '\0' && all.find(c) != all.npos; }

// Walks over the text of a format.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  bool done() const { return at_ >= text_.size(); }
  size_t at() const { return at_; }
  char peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  char Next() { return done() ? '\0' : text_[at_++]; }
  bool Take(char c) {
    const bool taken = !done() && text_[at_] == c;
    at_ += taken;
    return taken;
  }
  // Up to one of the characters, or to the end.
  std::string_view Until(std::string_view ends) {
    const size_t first = at_;
    at_ = std::min(text_.find_first_of(ends, at_), text_.size());
    return text_.substr(first, at_ - first);
  }
  std::optional<int64_t> Number() {
    if (!IsDigit(peek())) return std::nullopt;
    int64_t number = 0;
    // More digits than a width can have all mean too much.
    while (IsDigit(peek())) number = std::min<int64_t>(number * 10 + (Next() - '0'), 1 << 30);
    return number;
  }

 private:
  std::string_view text_;
  size_t at_ = 0;
};

class PercentFormat {
 public:
  PercentFormat(Evaluator& evaluator, const MarkedText& format, const Value& values)
      : evaluator_(evaluator), format_(format), cursor_(format.bytes()), values_(values) {}

  absl::StatusOr<Value> Run() {
    MarkedText out;
    while (!cursor_.done()) {
      const size_t first = cursor_.at();
      cursor_.Until("%");
      PF_RETURN_IF_ERROR(evaluator_.Append(out, format_.Substr(first, cursor_.at())));
      if (!cursor_.Take('%')) break;
      PF_ASSIGN_OR_RETURN(const MarkedText field, Field());
      PF_RETURN_IF_ERROR(evaluator_.Append(out, field));
    }
    // One value that has items is one for names, of which not all need to be asked for.
    const bool named = values_.dict() || (values_.list() && !values_.is_tuple());
    if (!named && taken_ < count()) {
      return Wrong(StrCat("\"%\": expected ", taken_, " values, got ", count()));
    }
    return evaluator_.Text(std::move(out));
  }

 private:
  size_t count() const { return values_.is_tuple() ? values_.list()->size() : 1; }

  absl::StatusOr<Value> NextValue() {
    if (taken_ >= count()) {
      return Wrong(StrCat("\"%\": expected more values than ", count()));
    }
    const size_t place = taken_++;
    return values_.is_tuple() ? (*values_.list())[place] : values_;
  }

  // %(name)s
  absl::StatusOr<Value> NamedValue() {
    const std::string name(cursor_.Until(")"));
    if (!cursor_.Take(')')) return Wrong("\"%\": a name without its bracket");
    if (!values_.dict()) return Wrong(StrCat("\"%\": expected a dict, got ", values_.KindName()));
    const Value* found = Lookup(*values_.dict(), name);
    if (found == nullptr) return Wrong(StrCat("\"%\": the dict has no \"", name, "\""));
    return *found;
  }

  // A number, or a value that is one for "*".
  absl::StatusOr<std::optional<int64_t>> Size() {
    if (!cursor_.Take('*')) return cursor_.Number();
    PF_ASSIGN_OR_RETURN(const Value size, NextValue());
    if (!size.integer()) return Wrong(StrCat("\"%*\": expected an integer, got ", size.KindName()));
    return size.integer();
  }

  // Behind the "%".
  absl::StatusOr<MarkedText> Field() {
    std::optional<Value> value;
    if (cursor_.Take('(')) {
      PF_ASSIGN_OR_RETURN(value, NamedValue());
    }
    FieldLayout layout{.align = '>'};
    bool zeros = false;
    for (; IsOneOf(cursor_.peek(), "-+ #0"); cursor_.Next()) {
      const char flag = cursor_.peek();
      if (flag == '-') layout.align = '<';
      if (flag == '0') zeros = true;
      if (flag == '#') layout.alternate = true;
      if (flag == '+' || (flag == ' ' && layout.sign == '-')) layout.sign = flag;
    }
    PF_ASSIGN_OR_RETURN(const std::optional<int64_t> width, Size());
    layout.width = std::abs(std::max<int64_t>(width.value_or(0), -(1 << 30)));
    if (width.value_or(0) < 0) layout.align = '<';
    if (cursor_.Take('.')) {
      PF_ASSIGN_OR_RETURN(const std::optional<int64_t> precision, Size());
      layout.precision = std::max<int64_t>(precision.value_or(0), 0);
    }
    while (IsOneOf(cursor_.peek(), "hlL")) cursor_.Next();
    layout.type = cursor_.Next();
    if (layout.type == '%') return MarkedText("%");
    if (layout.type == 'i' || layout.type == 'u') layout.type = 'd';
    if (layout.type == 'a') layout.type = 'r';
    if (!IsOneOf(layout.type, "dxXoeEfFgGcrs")) {
      return Wrong(StrCat("\"%\": the type \"", std::string(1, layout.type), "\" is not known"));
    }
    if (zeros && layout.align == '>' && !IsOneOf(layout.type, "crs")) {
      layout.align = '=';
      layout.fill.assign(1, '0');
    }
    if (!value) {
      PF_ASSIGN_OR_RETURN(value, NextValue());
    }
    return LaidOut(evaluator_.work(), *value, layout);
  }

  Evaluator& evaluator_;
  const MarkedText& format_;
  Cursor cursor_;
  const Value& values_;
  size_t taken_ = 0;
};

// [[fill]align][sign][#][0][width][,][.precision][type]
absl::StatusOr<FieldLayout> LayoutOf(std::string_view text) {
  FieldLayout layout;
  if (text.empty()) return layout;
  constexpr std::string_view kAligns = "<>=^";
  const auto fill = static_cast<size_t>(std::max(FrontOfUtf8(text).bytes, 1));
  Cursor cursor(text);
  if (fill < text.size() && IsOneOf(text[fill], kAligns)) {
    layout.fill = std::string(text.substr(0, fill));
    layout.align = text[fill];
    cursor = Cursor(text.substr(fill + 1));
  } else if (IsOneOf(cursor.peek(), kAligns)) {
    layout.align = cursor.Next();
  }
  if (IsOneOf(cursor.peek(), "+- ")) layout.sign = cursor.Next();
  layout.alternate = cursor.Take('#');
  if (cursor.Take('0') && layout.align == '\0') {
    layout.align = '=';
    layout.fill.assign(1, '0');
  }
  layout.width = cursor.Number().value_or(0);
  if (IsOneOf(cursor.peek(), ",_")) layout.grouping = cursor.Next();
  if (cursor.Take('.')) {
    layout.precision = cursor.Number();
    if (!layout.precision) return Wrong(StrCat("the field \"", text, "\" has no precision"));
  }
  layout.type = cursor.Next();
  const bool known = layout.type == '\0' || IsOneOf(layout.type, "dxXobeEfFgG%cs");
  if (!known || !cursor.done()) return Wrong(StrCat("the field \"", text, "\" is not known"));
  return layout;
}

class BraceFormat {
 public:
  BraceFormat(Evaluator& evaluator, const Arguments& arguments)
      : evaluator_(evaluator), arguments_(arguments) {}

  // `inner`: the format of a field, in which fields have none of their own.
  absl::StatusOr<MarkedText> Run(const MarkedText& format, bool inner) {
    Cursor cursor(format.bytes());
    MarkedText out;
    while (!cursor.done()) {
      const size_t first = cursor.at();
      cursor.Until("{}");
      PF_RETURN_IF_ERROR(evaluator_.Append(out, format.Substr(first, cursor.at())));
      if (cursor.done()) break;
      const char brace = cursor.Next();
      if (cursor.Take(brace)) {
        PF_RETURN_IF_ERROR(evaluator_.Append(out, MarkedText(std::string(1, brace))));
        continue;
      }
      if (brace == '}') return Wrong("a single \"}\" in the format");
      PF_ASSIGN_OR_RETURN(const MarkedText field, Field(cursor, format, inner));
      PF_RETURN_IF_ERROR(evaluator_.Append(out, field));
    }
    return out;
  }

 private:
  absl::StatusOr<Value> Positional(size_t place) {
    if (place < arguments_.positional.size()) return arguments_.positional[place];
    return Wrong(StrCat("expected more values than ", arguments_.positional.size()));
  }

  // {}, {0} or {name}.
  absl::StatusOr<Value> Base(const std::string& name) {
    if (name.empty()) return Positional(next_++);
    Cursor digits(name);
    const std::optional<int64_t> place = digits.Number();
    if (place && digits.done()) return Positional(static_cast<size_t>(*place));
    if (const Value* value = Lookup(arguments_.named, name)) return *value;
    return Wrong(StrCat("no argument is called \"", name, "\""));
  }

  // With its members: {0.name[key]}.
  absl::StatusOr<Value> FieldValue(Cursor& cursor) {
    PF_ASSIGN_OR_RETURN(Value value, Base(std::string(cursor.Until(".[!:}"))));
    while (true) {
      if (cursor.Take('.')) {
        PF_ASSIGN_OR_RETURN(value, evaluator_.Attribute(value, std::string(cursor.Until(".[!:}"))));
      } else if (cursor.Take('[')) {
        const std::string key(cursor.Until("]"));
        if (!cursor.Take(']')) return Wrong("\"[\" without its bracket");
        Cursor digits(key);
        const std::optional<int64_t> place = digits.Number();
        PF_ASSIGN_OR_RETURN(
            value, evaluator_.Item(value, place && digits.done() ? Value(*place) : Value(key)));
      } else {
        return value;
      }
    }
  }

  // Behind the "{".
  absl::StatusOr<MarkedText> Field(Cursor& cursor, const MarkedText& format, bool inner) {
    PF_ASSIGN_OR_RETURN(Value value, FieldValue(cursor));
    if (cursor.Take('!')) {
      const char conversion = cursor.Next();
      if (!IsOneOf(conversion, "ras")) return Wrong("expected !r, !s or !a in the format");
      PF_ASSIGN_OR_RETURN(MarkedText text, conversion == 's' ? value.Print(evaluator_.work())
                                                             : value.Repr(evaluator_.work()));
      value = Value(std::move(text));
    }
    FieldLayout layout;
    if (cursor.Take(':')) {
      if (inner) return Wrong("fields nested too deeply in the format");
      const size_t first = cursor.at();
      for (int open = 0; !cursor.done() && (open > 0 || cursor.peek() != '}'); cursor.Next()) {
        open += (cursor.peek() == '{') - (cursor.peek() == '}');
      }
      PF_ASSIGN_OR_RETURN(const MarkedText spec, Run(format.Substr(first, cursor.at()), true));
      PF_ASSIGN_OR_RETURN(layout, LayoutOf(spec.bytes()));
    }
    if (!cursor.Take('}')) return Wrong("expected \"}\" in the format");
    return LaidOut(evaluator_.work(), value, ForKind(layout, value));
  }

  // What a layout without a type means for numbers.
  static FieldLayout ForKind(FieldLayout layout, const Value& value) {
    if (layout.type != '\0' || !value.is_number()) return layout;
    const bool plain = layout.sign == '-' && layout.grouping == '\0' && !layout.precision;
    if (layout.align == '\0') layout.align = '>';
    if (value.flag() && plain && layout.width == 0) return layout;
    if (value.integer()) layout.type = 'd';
    if (value.is_float() && !plain) layout.type = layout.precision ? 'g' : 'f';
    return layout;
  }

  Evaluator& evaluator_;
  const Arguments& arguments_;
  size_t next_ = 0;
};

}  // namespace

absl::StatusOr<Value> FormatPercent(Evaluator& evaluator, const MarkedText& format,
                                    const Value& values) {
  return PercentFormat(evaluator, format, values).Run();
}

absl::StatusOr<Value> FormatBraces(Evaluator& evaluator, const MarkedText& format,
                                   const Arguments& arguments) {
  PF_ASSIGN_OR_RETURN(MarkedText text, BraceFormat(evaluator, arguments).Run(format, false));
  return evaluator.Text(std::move(text));
}

}  // namespace pagefuse::chat_template
