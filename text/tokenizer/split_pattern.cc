// SPDX-License-Identifier: Apache-2.0
// TranslatePattern: one pass over a pattern. What PCRE2 and Oniguruma read alike is copied; character classes are computed and
// written as ranges of code points.
#include "absl/strings/str_format.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/text/tokenizer/split_regex.h"
#include "pagefuse/text/tokenizer/unicode_classes.h"
#include "pagefuse/text/utf8.h"

namespace pagefuse {
namespace {

constexpr char32_t kBeforeSurrogates = 0xD7FF, kAfterSurrogates = 0xE000;

void AppendRange(char32_t first, char32_t last, std::string& out) {
  if (first > last) return;
  out += absl::StrFormat("\\x{%x}", static_cast<unsigned>(first));
  if (last > first) out += absl::StrFormat("-\\x{%x}", static_cast<unsigned>(last));
}

// A class; surrogates are no characters of UTF-8, and PCRE2 refuses them.
std::string ClassText(const CodePointSet& set, bool negated) {
  std::string text = negated ? "[^" : "[";
  for (const auto& [first, last] : set.ranges()) {
    AppendRange(first, std::min(last, kBeforeSurrogates), text);
    AppendRange(std::max(first, kAfterSurrogates), last, text);
  }
  if (text.back() == '[') return "(?!)";      // matches nothing
  if (text.back() == '^') return "[\\s\\S]";  // matches everything
  return text + "]";
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  absl::StatusOr<std::string> Run() {
    while (!done()) PF_RETURN_IF_ERROR(Item());
    return out_;
  }

 private:
  bool done() const { return at_ == pattern_.size(); }
  char peek() const { return pattern_[at_]; }

  absl::Status Refuse(std::string_view what) const {
    return absl::UnimplementedError(
        StrCat("pattern \"", pattern_, "\": ", what, " at byte ", at_, " is not known"));
  }

  absl::Status Item() {
    if (peek() == '\\') {
      ++at_;
      return EscapeOutside();
    }
    if (peek() == '[') return Class();
    if (pattern_.substr(at_).starts_with("(?")) PF_RETURN_IF_ERROR(CheckGroup());
    if (pattern_.substr(at_).starts_with("(*")) return Refuse("a verb");
    out_ += pattern_[at_++];
    return absl::OkStatus();
  }

  // Groups that both know alike: (?: (?i: (?= (?! (?<= (?<! (?>
  absl::Status CheckGroup() const {
    const std::string_view rest = pattern_.substr(at_ + 2);
    for (std::string_view known : {":", "i:", "i)", "=", "!", "<=", "<!", ">"}) {
      if (rest.starts_with(known)) return absl::OkStatus();
    }
    return Refuse(StrCat("the group \"", pattern_.substr(at_, 4), "\""));
  }

  // The set of \s, \S, \d, \D, \w, \W, \p{..} or \P{..}; none for other escapes. Stands behind the
  // backslash.
  absl::StatusOr<std::optional<CodePointSet>> SetOfEscape() {
    if (done()) return Refuse("a backslash at the end");
    const char letter = peek();
    CodePointSet set;
    switch (letter) {
      case 's':
      case 'S':
        set = WhiteSpace();
        break;
      case 'd':
      case 'D':
        set = *CategorySet("Nd");
        break;
      case 'w':
      case 'W':
        set = WordCharacters();
        break;
      case 'p':
      case 'P':
        return SetOfProperty();
      default:
        return std::optional<CodePointSet>();
    }
    ++at_;
    return std::optional(letter >= 'a' ? set : set.Complement());
  }

  absl::StatusOr<std::optional<CodePointSet>> SetOfProperty() {
    bool negated = peek() == 'P';
    const size_t open = at_ + 1, close = pattern_.find('}', open);
    if (close == std::string_view::npos || pattern_[open] != '{') return Refuse("\\p without {..}");
    std::string_view name = pattern_.substr(open + 1, close - open - 1);
    if (name.starts_with("^")) {
      negated = !negated;
      name.remove_prefix(1);
    }
    const std::optional<CodePointSet> set = CategorySet(name);
    if (!set) return Refuse(StrCat("the property \"", name, "\""));
    at_ = close + 1;
    return std::optional(negated ? set->Complement() : *set);
  }

  absl::StatusOr<char32_t> Hex(size_t least, size_t most) {
    char32_t point = 0;
    size_t digits = 0;
    for (; digits < most && !done() && std::isxdigit(static_cast<unsigned char>(peek()));
         ++digits) {
      const char digit = pattern_[at_++];
      point = point * 16 + (digit <= '9' ? digit - '0' : (digit | 0x20) - 'a' + 10);
    }
    if (digits < least || point > kLastCodePoint) return Refuse("a code point");
    return point;
  }

  // The character that an escape stands for. Stands behind the backslash.
  absl::StatusOr<char32_t> PointOfEscape() {
    static constexpr std::string_view kLetters = "nrtfvae", kMeaning = "\n\r\t\f\v\a\x1b";
    const char letter = peek();
    if (const size_t place = kLetters.find(letter); place != std::string_view::npos) {
      ++at_;
      return static_cast<char32_t>(kMeaning[place]);
    }
    if (letter == 'u') {
      ++at_;
      return Hex(4, 4);
    }
    if (letter == 'x') {
      ++at_;
      const bool braces = !done() && peek() == '{';
      at_ += braces;
      PF_ASSIGN_OR_RETURN(const char32_t point, Hex(1, braces ? 8 : 2));
      if (!braces) return point;
      if (done() || peek() != '}') return Refuse("a code point");
      ++at_;
      return point;
    }
    if (std::isalnum(static_cast<unsigned char>(letter))) {
      return Refuse(StrCat("the escape \"\\", std::string(1, letter), "\""));
    }
    return NextCodePoint(pattern_, at_);
  }

  absl::Status EscapeOutside() {
    PF_ASSIGN_OR_RETURN(const std::optional<CodePointSet> set, SetOfEscape());
    if (set) {
      out_ += ClassText(*set, /*negated=*/false);
      return absl::OkStatus();
    }
    for (std::string_view anchor : {"b", "B", "A", "z", "Z"}) {
      // Word boundaries would be those of the library's own \w.
      if (peek() == anchor[0]) return Refuse(StrCat("the anchor \"\\", anchor, "\""));
    }
    PF_ASSIGN_OR_RETURN(const char32_t point, PointOfEscape());
    AppendRange(point, point, out_);
    return absl::OkStatus();
  }

  absl::Status Class() {
    ++at_;
    const bool negated = !done() && peek() == '^';
    at_ += negated;
    CodePointSet set;
    for (bool first = true; !done() && (first || peek() != ']'); first = false) {
      PF_RETURN_IF_ERROR(ClassItem(set));
    }
    if (done()) return Refuse("a class without its end");
    ++at_;
    out_ += ClassText(set, negated);
    return absl::OkStatus();
  }

  absl::Status ClassItem(CodePointSet& set) {
    if (peek() == '[' || pattern_.substr(at_).starts_with("&&"))
      return Refuse("a class in a class");
    if (peek() == '\\') {
      ++at_;
      PF_ASSIGN_OR_RETURN(const std::optional<CodePointSet> part, SetOfEscape());
      if (part) {
        set.Add(*part);
        return absl::OkStatus();
      }
      --at_;
    }
    PF_ASSIGN_OR_RETURN(const char32_t first, ClassPoint());
    const bool range = pattern_.substr(at_).starts_with("-") &&
                       !pattern_.substr(at_).starts_with("-]") && at_ + 1 < pattern_.size();
    if (!range) {
      set.Add(first, first);
      return absl::OkStatus();
    }
    ++at_;
    PF_ASSIGN_OR_RETURN(const char32_t last, ClassPoint());
    if (last < first) return Refuse("a range that ends before it begins");
    set.Add(first, last);
    return absl::OkStatus();
  }

  absl::StatusOr<char32_t> ClassPoint() {
    if (peek() != '\\') return NextCodePoint(pattern_, at_);
    ++at_;
    if (done()) return Refuse("a backslash at the end");
    return PointOfEscape();
  }

  std::string_view pattern_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

absl::StatusOr<std::string> TranslatePattern(std::string_view pattern) {
  if (FirstBrokenByte(pattern)) return absl::InvalidArgumentError("a pattern that is not UTF-8");
  return Translator(pattern).Run();
}

}  // namespace pagefuse
