// SPDX-License-Identifier: Apache-2.0
// Parses chat templates: the expressions, and what expressions and statements share.
#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "pagefuse/text/template/template_ast.h"
#include "pagefuse/text/template/template_lexer.h"

namespace pagefuse::chat_template {

class ExprParser {
 public:
  explicit ExprParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  // An expression, with `a if b else c` unless `conditional` is false.
  absl::StatusOr<ExprPtr> Expression(bool conditional = true);
  // The same, or several with commas: a list.
  absl::StatusOr<ExprPtr> Tuple(bool conditional = true);
  // `value` and the filters that a name begins: `trim | upper`.
  absl::StatusOr<ExprPtr> Filters(ExprPtr value);

  const Token& peek() const { return tokens_[at_]; }
  size_t place() const { return at_; }
  // Whether the name stands anywhere from `first` up to here.
  bool Mentions(size_t first, std::string_view name) const;
  Token Next();
  bool Take(Token::Kind kind, std::string_view text = "");
  absl::Status Expect(Token::Kind kind, std::string_view text, std::string_view shown);
  absl::StatusOr<std::string> Name();
  absl::Status Error(std::string_view what) const;

 private:
  using Level = absl::StatusOr<ExprPtr> (ExprParser::*)();

  bool TakeSymbol(std::string_view text) { return Take(Token::kSymbol, text); }
  bool TakeName(std::string_view text) { return Take(Token::kName, text); }
  absl::StatusOr<ExprPtr> Checked(ExprPtr expr) const;
  absl::StatusOr<ExprPtr> Make(Expr::Kind kind, std::string name, ExprPtr a,
                               ExprPtr b = nullptr) const;
  absl::StatusOr<ExprPtr> Joined(Level level, Expr::Kind kind,
                                 std::initializer_list<std::string_view> operators);

  absl::StatusOr<ExprPtr> Or();
  absl::StatusOr<ExprPtr> And();
  absl::StatusOr<ExprPtr> Not();
  absl::StatusOr<ExprPtr> Comparison();
  absl::StatusOr<ExprPtr> Sum();
  absl::StatusOr<ExprPtr> Concatenation();
  absl::StatusOr<ExprPtr> Product();
  absl::StatusOr<ExprPtr> Power();
  absl::StatusOr<ExprPtr> Unary(bool filters);
  absl::StatusOr<ExprPtr> UnaryWithFilters() { return Unary(true); }
  absl::StatusOr<ExprPtr> Primary();
  absl::StatusOr<ExprPtr> Parenthesised();
  absl::StatusOr<ExprPtr> ListLiteral();
  absl::StatusOr<ExprPtr> DictLiteral();
  absl::StatusOr<ExprPtr> Postfix(ExprPtr expr);
  absl::StatusOr<ExprPtr> Attribute(ExprPtr object);
  absl::StatusOr<ExprPtr> Subscript(ExprPtr object);
  absl::StatusOr<ExprPtr> FiltersAndTests(ExprPtr expr);
  absl::StatusOr<ExprPtr> Filter(ExprPtr value);
  absl::StatusOr<ExprPtr> Test(ExprPtr value);
  absl::StatusOr<ExprPtr> Call(ExprPtr function);
  absl::Status CallArguments(Expr& call);
  std::string ComparisonOperator();

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace pagefuse::chat_template
