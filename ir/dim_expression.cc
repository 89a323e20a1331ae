#include "pagefuse/ir/dim_expression.h"

#include "absl/strings/numbers.h"

#include "pagefuse/ir/str_cat.h"

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

// Recursive descent: sum = product (('+'|'-') product)*, product = factor (('*'|'//') factor)*.
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

  bool Take(std::string_view token) {
    Blanks();
    if (rest_.substr(0, token.size()) != token) return false;
    rest_.remove_prefix(token.size());
    return true;
  }

  std::optional<Dim> Sum(int depth) {
    std::optional<Dim> left = Product(depth);
    while (left) {
      const bool plus = Take("+");
      if (!plus && !Take("-")) break;
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
    if (depth > kMaxDepth) return std::nullopt;
    if (Take("(")) {
      std::optional<Dim> inner = Sum(depth + 1);
      return Take(")") ? inner : std::nullopt;
    }
    if (Take("-")) {
      const std::optional<Dim> inner = Factor(depth + 1);
      return inner ? std::optional<Dim>(*inner * Dim(-1)) : std::nullopt;
    }
    Blanks();
    if (rest_.empty()) return std::nullopt;
    return IsDigit(rest_[0]) ? Number() : Name();
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
