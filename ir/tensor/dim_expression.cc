// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ir/tensor/dim_expression.h"

#include "absl/strings/numbers.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

constexpr size_t kMaxLength = 4096;
constexpr int kMaxDepth = 64;

bool IsNameStart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNamePart(char c) { return IsNameStart(c) || IsDigit(c) || c == '.'; }

// Recursive descent: sum = product ((' + '|' - ') product)*, product = factor (('*'|'//') factor)*.
class Parser {
 public:
  Parser(std::string_view text, const std::map<std::string, Dim>& bindings)
      : rest_(text), bindings_(bindings) {}

  std::optional<Dim> Run() {
    std::optional<Dim> dim = Sum(0);
    Blanks();
    return rest_.empty() ? dim : std::nullopt;
  }

 private:
  void Blanks() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\t')) rest_.remove_prefix(1);
  }

  // Leaves blanks alone where the token is not there.
  bool Take(std::string_view token) {
    const std::string_view before = rest_;
    Blanks();
    if (rest_.substr(0, token.size()) != token) {
      rest_ = before;
      return false;
    }
    rest_.remove_prefix(token.size());
    return true;
  }

  static bool IsBlank(char c) { return c == ' ' || c == '\t'; }

  // A sign between blanks.
  bool TakeSign(std::string_view sign) {
    const std::string_view before = rest_;
    if (!rest_.empty() && IsBlank(rest_[0]) && Take(sign) && !rest_.empty() && IsBlank(rest_[0])) {
      return true;
    }
    rest_ = before;
    return false;
  }

  std::optional<Dim> Sum(int depth) {
    std::optional<Dim> left = Product(depth);
    while (left) {
      const bool plus = TakeSign("+");
      if (!plus && !TakeSign("-")) break;
      const std::optional<Dim> right = Product(depth);
      if (!right) return std::nullopt;
      left = plus ? *left + *right : *left - *right;
    }
    return left;
  }

  std::optional<Dim> Product(int depth) {
    std::optional<Dim> left = Factor(depth);
    while (left) {
      const bool divide = Take("//");
      if (!divide && !Take("*")) break;
      const std::optional<Dim> right = Factor(depth);
      if (!right) return std::nullopt;
      left = divide ? left->FloorDiv(*right) : *left * *right;
    }
    return left;
  }

  std::optional<Dim> Factor(int depth) {
    too_deep_ = too_deep_ || depth > kMaxDepth;
    if (too_deep_) return std::nullopt;
    if (Take("(")) return Parenthesised(depth);
    if (Take("-")) {
      const std::optional<Dim> inner = Factor(depth + 1);
      return inner ? std::optional<Dim>(*inner * Dim(-1)) : std::nullopt;
    }
    Blanks();
    if (rest_.empty()) return std::nullopt;
    return IsDigit(rest_[0]) ? Number() : Name();
  }

  std::optional<Dim> Parenthesised(int depth) {
    const std::string_view start = rest_;
    std::optional<Dim> inner = Sum(depth + 1);
    if (inner && Take(")")) return inner;
    if (too_deep_) return std::nullopt;
    size_t open = 1, length = 0;
    for (; length < start.size(); ++length) {
      if (start[length] == '(') ++open;
      if (start[length] == ')' && --open == 0) break;
    }
    if (open != 0 || length == 0) return std::nullopt;
    rest_ = start.substr(length + 1);
    return Dim::Symbol(start.substr(0, length));
  }

  std::optional<Dim> Number() {
    size_t length = 0;
    while (length < rest_.size() && IsNamePart(rest_[length])) ++length;
    int64_t value;
    if (!absl::SimpleAtoi(AbslView(rest_.substr(0, length)), &value)) return std::nullopt;
    rest_.remove_prefix(length);
    return Dim(value);
  }

  std::optional<Dim> Name() {
    if (!IsNameStart(rest_[0])) return std::nullopt;
    size_t length = 1;
    while (length < rest_.size() && IsNamePart(rest_[length])) ++length;
    const std::string name(rest_.substr(0, length));
    rest_.remove_prefix(length);
    const auto bound = bindings_.find(name);
    return bound != bindings_.end() ? bound->second : Dim::Symbol(name);
  }

  std::string_view rest_;
  bool too_deep_ = false;
  const std::map<std::string, Dim>& bindings_;
};

}  // namespace

bool IsDimIdentifier(std::string_view text) {
  if (text.empty() || !IsNameStart(text[0])) return false;
  for (const char c : text) {
    if (!IsNamePart(c)) return false;
  }
  return true;
}

std::optional<Dim> EvaluateDimExpression(std::string_view text,
                                         const std::map<std::string, Dim>& bindings) {
  if (text.size() > kMaxLength) return std::nullopt;
  return Parser(text, bindings).Run();
}

}  // namespace pagefuse
