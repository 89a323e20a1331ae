// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/template/template_lexer.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/text/template/template_text.h"
#include "pagefuse/text/utf8.h"

namespace pagefuse::chat_template {
namespace {

bool IsNameStart(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool IsNameChar(char c) { return IsNameStart(c) || std::isdigit(static_cast<unsigned char>(c)); }

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (at_ < source_.size()) {
      const size_t tag = NextTag();
      AddText(tag);
      if (at_ < source_.size()) PF_RETURN_IF_ERROR(Tag());
    }
    Add(Token::kEnd, "");
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(at_); }

  absl::Status Error(std::string_view what) const {
    return absl::InvalidArgumentError(StrCat("line ", line_, ": ", what));
  }

  void Add(Token::Kind kind, std::string text) {
    tokens_.push_back({.kind = kind, .text = std::move(text), .line = line_});
  }

  void Skip(size_t bytes) {
    line_ +=
        static_cast<int>(std::count(source_.begin() + at_, source_.begin() + at_ + bytes, '\n'));
    at_ += bytes;
  }

  // Where the next {{, {% or {# begins, or the end.
  size_t NextTag() const {
    for (size_t at = source_.find('{', at_); at != std::string::npos;
         at = source_.find('{', at + 1)) {
      if (at + 1 == source_.size()) break;
      const char next = source_[at + 1];
      if (next == '{' || next == '%' || next == '#') return at;
    }
    return source_.size();
  }

  // The text up to `end`, less what the tag there takes away.
  void AddText(size_t end) {
    std::string text = source_.substr(at_, end - at_);
    const std::string_view tag = std::string_view(source_).substr(end, 3);
    if (tag.size() == 3 && tag[2] == '-') {
      text.resize(TrimmedEnd(text));
    } else if (tag.size() >= 2 && tag[1] != '{' && !tag.ends_with('+')) {
      // lstrip_blocks: white space between the beginning of the line and the tag.
      const size_t line = text.rfind('\n') + 1;
      const bool whole_line = line > 0 || at_ == 0 || source_[at_ - 1] == '\n';
      if (whole_line && text.find_first_not_of(" \t", line) == std::string::npos) text.resize(line);
    }
    if (!text.empty()) Add(Token::kText, std::move(text));
    Skip(end - at_);
  }

  absl::Status Tag() {
    const char kind = source_[at_ + 1];
    Skip(2);
    if (!rest().empty() && (rest()[0] == '-' || rest()[0] == '+')) Skip(1);
    if (kind == '#') return Comment();
    if (kind == '{') return Inside(Token::kPrintBegin, Token::kPrintEnd, "}}");
    if (IsRaw()) return Raw();
    return Inside(Token::kBlockBegin, Token::kBlockEnd, "%}");
  }

  absl::Status Comment() {
    const size_t end = rest().find("#}");
    if (end == std::string_view::npos) return Error("a comment without its end");
    Skip(end);
    Close(source_[at_ - 1], 2, /*trims_newline=*/true);
    return absl::OkStatus();
  }

  // Behind the end of a tag: `mark` is the character in front of it.
  void Close(char mark, size_t bytes, bool trims_newline) {
    Skip(bytes);
    if (mark == '-') {
      Skip(LeadingSpace(rest()));
    } else if (trims_newline && mark != '+' && rest().starts_with('\n')) {
      Skip(1);
    }
  }

  // {% raw %}
  bool IsRaw() const { return BlockWord(at_, "raw") > 0; }

  // Where the block that begins behind "{%" ends, if it is this word alone; else 0.
  size_t BlockWord(size_t at, std::string_view word) const {
    const auto skip = [&] { at += LeadingSpace(std::string_view(source_).substr(at)); };
    skip();
    if (source_.compare(at, word.size(), word) != 0) return 0;
    at += word.size();
    skip();
    if (at < source_.size() && (source_[at] == '-' || source_[at] == '+')) ++at;
    return source_.compare(at, 2, "%}") == 0 ? at + 2 : 0;
  }

  absl::Status Raw() {
    const size_t begin = BlockWord(at_, "raw");
    Skip(begin - 2 - at_);
    Close(source_[at_ - 1], 2, /*trims_newline=*/false);
    for (size_t tag = source_.find("{%", at_); tag != std::string::npos;
         tag = source_.find("{%", tag + 1)) {
      const bool marked =
          tag + 2 < source_.size() && (source_[tag + 2] == '-' || source_[tag + 2] == '+');
      const size_t end = BlockWord(tag + 2 + marked, "endraw");
      if (end == 0) continue;
      AddText(tag);
      Skip(end - 2 - at_);
      Close(source_[at_ - 1], 2, /*trims_newline=*/true);
      return absl::OkStatus();
    }
    return Error("raw without endraw");
  }

  absl::Status Inside(Token::Kind begin, Token::Kind end, std::string_view closing) {
    Add(begin, "");
    std::vector<char> open;  // brackets: a }} may close dicts
    while (true) {
      Skip(LeadingSpace(rest()));
      if (rest().empty()) return Error(StrCat("expected \"", closing, "\", got the end"));
      const bool marked = open.empty() && (rest()[0] == '-' || rest()[0] == '+') &&
                          rest().substr(1).starts_with(closing);
      if (marked || (open.empty() && rest().starts_with(closing))) {
        Add(end, "");
        const char mark = marked ? rest()[0] : '\0';
        Skip(marked);
        Close(mark, 2, /*trims_newline=*/end == Token::kBlockEnd);
        return absl::OkStatus();
      }
      PF_RETURN_IF_ERROR(Lexeme(open));
    }
  }

  absl::Status Lexeme(std::vector<char>& open) {
    const char c = rest()[0];
    if (IsNameStart(c)) {
      size_t size = 1;
      while (size < rest().size() && IsNameChar(rest()[size])) ++size;
      Add(Token::kName, std::string(rest().substr(0, size)));
      Skip(size);
      return absl::OkStatus();
    }
    if (std::isdigit(static_cast<unsigned char>(c))) return Number();
    if (c == '\'' || c == '"') return String();
    return Symbol(open);
  }

  absl::Status Number() {
    size_t size = 0;
    const std::string_view text = rest();
    const auto digits = [&] {
      while (size < text.size() &&
             (std::isdigit(static_cast<unsigned char>(text[size])) || text[size] == '_'))
        ++size;
    };
    digits();
    bool real = false;
    if (size + 1 < text.size() && text[size] == '.' &&
        std::isdigit(static_cast<unsigned char>(text[size + 1]))) {
      real = true;
      ++size;
      digits();
    }
    if (size < text.size() && (text[size] | 0x20) == 'e') {
      const size_t sign =
          size + 1 < text.size() && (text[size + 1] == '-' || text[size + 1] == '+');
      if (size + 1 + sign < text.size() &&
          std::isdigit(static_cast<unsigned char>(text[size + 1 + sign]))) {
        real = true;
        size += 1 + sign;
        digits();
      }
    }
    const std::string number = absl::StrReplaceAll(AbslView(text.substr(0, size)), {{"_", ""}});
    Add(real ? Token::kFloat : Token::kInteger, number);
    Token& token = tokens_.back();
    const bool read =
        real ? absl::SimpleAtod(number, &token.real) : absl::SimpleAtoi(number, &token.integer);
    if (!read) return Error(StrCat("the number ", number, " is too large"));
    Skip(size);
    return absl::OkStatus();
  }

  absl::Status String() {
    const char quote = rest()[0];
    size_t end = 1;
    while (end < rest().size() && rest()[end] != quote) end += rest()[end] == '\\' ? 2 : 1;
    if (end >= rest().size()) return Error("a string without its end");
    PF_ASSIGN_OR_RETURN(std::string text, Unescaped(rest().substr(1, end - 1)));
    Add(Token::kString, std::move(text));
    Skip(end + 1);
    return absl::OkStatus();
  }

  // As Python's string literals; unknown escapes keep their backslash.
  absl::StatusOr<std::string> Unescaped(std::string_view text) const {
    static constexpr std::string_view kLetters = "nrtbfav0\\'\"",
                                      kMeaning("\n\r\t\b\f\a\v\0\\'\"", 11);
    std::string out;
    for (size_t at = 0; at < text.size(); ++at) {
      if (text[at] != '\\' || at + 1 == text.size()) {
        out += text[at];
        continue;
      }
      const char letter = text[++at];
      const size_t digits = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
      if (digits > 0) {
        uint32_t point = 0;
        const std::string_view hex = text.substr(at + 1, digits);
        const auto read = std::from_chars(hex.data(), hex.data() + hex.size(), point, 16);
        const bool whole = hex.size() == digits && read.ptr == hex.data() + digits;
        if (!whole || point > 0x10FFFF || (point >= 0xD800 && point < 0xE000)) {
          return Error(StrCat("the escape \"\\", std::string(1, letter), "\" is not a character"));
        }
        AppendCodePoint(&out, point);
        at += digits;
      } else if (const size_t place = kLetters.find(letter); place != std::string_view::npos) {
        out += kMeaning[place];
      } else if (letter != '\n') {
        out += '\\';
        out += letter;
      }
    }
    return out;
  }

  absl::Status Symbol(std::vector<char>& open) {
    static constexpr std::string_view kSymbols[] = {
        "**", "//", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~", "<",
        ">",  "=",  ".",  ",",  ":",  "|",  "(", ")", "[", "]", "{", "}"};
    for (std::string_view symbol : kSymbols) {
      if (!rest().starts_with(symbol)) continue;
      if (symbol == "(" || symbol == "[" || symbol == "{") open.push_back(symbol[0]);
      if (symbol == ")" || symbol == "]" || symbol == "}") {
        const char expected = symbol == ")" ? '(' : symbol == "]" ? '[' : '{';
        if (open.empty() || open.back() != expected)
          return Error(StrCat("\"", symbol, "\" closes nothing"));
        open.pop_back();
      }
      Add(Token::kSymbol, std::string(symbol));
      Skip(symbol.size());
      return absl::OkStatus();
    }
    return Error(StrCat("the character \"",
                        rest().substr(0, std::max(1, FrontOfUtf8(rest()).bytes)),
                        "\" is not known here"));
  }

  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source) {
  if (const auto broken = FirstBrokenByte(source)) {
    return absl::InvalidArgumentError(StrCat("byte ", *broken, " is no UTF-8"));
  }
  std::string text = absl::StrReplaceAll(AbslView(source), {{"\r\n", "\n"}, {"\r", "\n"}});
  if (text.ends_with('\n')) text.pop_back();
  return Lexer(std::move(text)).Run();
}

}  // namespace pagefuse::chat_template
