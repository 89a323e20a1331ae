// SPDX-License-Identifier: Apache-2.0
// Expressions of chat templates, in Jinja's order of precedence.
#include <algorithm>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/text/template/template_parser.h"

namespace pagefuse::chat_template {
namespace {

constexpr int kMaxDepth = 100;   // of brackets and prefixes
constexpr int kMaxHeight = 400;  // of chains such as a + b + c, too

ExprPtr Literal(Value value, int line) {
  auto expr = std::make_unique<Expr>();
  expr->line = line;
  expr->literal = std::move(value);
  return expr;
}

}  // namespace

Token ExprParser::Next() {
  Token token = tokens_[at_];
  if (token.kind != Token::kEnd) ++at_;
  return token;
}

bool ExprParser::Mentions(size_t first, std::string_view name) const {
  return std::any_of(tokens_.begin() + first, tokens_.begin() + at_,
                     [&](const Token& token) { return token.Is(Token::kName, name); });
}

bool ExprParser::Take(Token::Kind kind, std::string_view text) {
  if (peek().kind != kind || (!text.empty() && peek().text != text)) return false;
  ++at_;
  return true;
}

absl::Status ExprParser::Error(std::string_view what) const {
  return absl::InvalidArgumentError(StrCat("line ", peek().line, ": ", what));
}

absl::Status ExprParser::Expect(Token::Kind kind, std::string_view text, std::string_view shown) {
  if (Take(kind, text)) return absl::OkStatus();
  const bool tag = peek().kind == Token::kBlockEnd || peek().kind == Token::kPrintEnd;
  return Error(StrCat("expected ", shown, ", got ",
                      tag ? "the end of the tag" : StrCat("\"", peek().text, "\"")));
}

absl::StatusOr<std::string> ExprParser::Name() {
  std::string name = peek().text;
  PF_RETURN_IF_ERROR(Expect(Token::kName, "", "a name"));
  return name;
}

// With the height that its parts give it.
absl::StatusOr<ExprPtr> ExprParser::Checked(ExprPtr expr) const {
  for (const ExprPtr& part : expr->parts) {
    if (part) expr->height = std::max(expr->height, part->height + 1);
  }
  for (const auto& [name, part] : expr->named) {
    expr->height = std::max(expr->height, part->height + 1);
  }
  if (expr->height > kMaxHeight) return Error("an expression of too many parts");
  return expr;
}

absl::StatusOr<ExprPtr> ExprParser::Make(Expr::Kind kind, std::string name, ExprPtr a,
                                         ExprPtr b) const {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = peek().line;
  expr->name = std::move(name);
  if (a) expr->parts.push_back(std::move(a));
  if (b) expr->parts.push_back(std::move(b));
  return Checked(std::move(expr));
}

absl::StatusOr<ExprPtr> ExprParser::Expression(bool conditional) {
  if (++depth_ > kMaxDepth) return Error("nested too deeply");
  PF_ASSIGN_OR_RETURN(ExprPtr value, Or());
  while (conditional && TakeName("if")) {
    PF_ASSIGN_OR_RETURN(ExprPtr condition, Or());
    PF_ASSIGN_OR_RETURN(ExprPtr whole,
                        Make(Expr::kConditional, "", std::move(value), std::move(condition)));
    ExprPtr otherwise;
    if (TakeName("else")) {
      PF_ASSIGN_OR_RETURN(otherwise, Expression());
    }
    whole->parts.push_back(std::move(otherwise));
    PF_ASSIGN_OR_RETURN(value, Checked(std::move(whole)));
  }
  --depth_;
  return value;
}

absl::StatusOr<ExprPtr> ExprParser::Tuple(bool conditional) {
  PF_ASSIGN_OR_RETURN(ExprPtr first, Expression(conditional));
  if (!(peek().Is(Token::kSymbol, ","))) return first;
  PF_ASSIGN_OR_RETURN(ExprPtr list, Make(Expr::kList, "tuple", std::move(first)));
  while (TakeSymbol(",")) {
    const bool ends = peek().kind == Token::kBlockEnd || peek().kind == Token::kPrintEnd ||
                      peek().Is(Token::kSymbol, ")") || peek().Is(Token::kSymbol, "=");
    if (ends) break;
    PF_ASSIGN_OR_RETURN(list->parts.emplace_back(), Expression(conditional));
  }
  return Checked(std::move(list));
}

absl::StatusOr<ExprPtr> ExprParser::Or() { return Joined(&ExprParser::And, Expr::kOr, {"or"}); }
absl::StatusOr<ExprPtr> ExprParser::And() { return Joined(&ExprParser::Not, Expr::kAnd, {"and"}); }

absl::StatusOr<ExprPtr> ExprParser::Not() {
  if (!TakeName("not")) return Comparison();
  if (++depth_ > kMaxDepth) return Error("nested too deeply");
  PF_ASSIGN_OR_RETURN(ExprPtr value, Not());
  --depth_;
  return Make(Expr::kUnary, "not", std::move(value));
}

// Takes an operator; empty if there is none.
std::string ExprParser::ComparisonOperator() {
  for (std::string_view symbol : {"==", "!=", "<=", ">=", "<", ">"}) {
    if (TakeSymbol(symbol)) return std::string(symbol);
  }
  if (TakeName("in")) return "in";
  const bool not_in = peek().Is(Token::kName, "not") && tokens_[at_ + 1].Is(Token::kName, "in");
  if (!not_in) return "";
  at_ += 2;
  return "not in";
}

absl::StatusOr<ExprPtr> ExprParser::Comparison() {
  PF_ASSIGN_OR_RETURN(ExprPtr first, Sum());
  std::string symbol = ComparisonOperator();
  if (symbol.empty()) return first;
  PF_ASSIGN_OR_RETURN(ExprPtr compare, Make(Expr::kCompare, "", std::move(first)));
  for (; !symbol.empty(); symbol = ComparisonOperator()) {
    compare->operators.push_back(symbol);
    PF_ASSIGN_OR_RETURN(compare->parts.emplace_back(), Sum());
  }
  return Checked(std::move(compare));
}

// level (operator level)*, from the left.
absl::StatusOr<ExprPtr> ExprParser::Joined(Level level, Expr::Kind kind,
                                           std::initializer_list<std::string_view> operators) {
  const Token::Kind token = kind == Expr::kBinary ? Token::kSymbol : Token::kName;
  PF_ASSIGN_OR_RETURN(ExprPtr left, (this->*level)());
  while (true) {
    const auto symbol = std::find_if(operators.begin(), operators.end(),
                                     [&](std::string_view op) { return Take(token, op); });
    if (symbol == operators.end()) return left;
    PF_ASSIGN_OR_RETURN(ExprPtr right, (this->*level)());
    PF_ASSIGN_OR_RETURN(left, Make(kind, std::string(*symbol), std::move(left), std::move(right)));
  }
}

absl::StatusOr<ExprPtr> ExprParser::Sum() {
  return Joined(&ExprParser::Concatenation, Expr::kBinary, {"+", "-"});
}
absl::StatusOr<ExprPtr> ExprParser::Concatenation() {
  return Joined(&ExprParser::Product, Expr::kBinary, {"~"});
}
absl::StatusOr<ExprPtr> ExprParser::Product() {
  return Joined(&ExprParser::Power, Expr::kBinary, {"*", "/", "//", "%"});
}
absl::StatusOr<ExprPtr> ExprParser::Power() {
  return Joined(&ExprParser::UnaryWithFilters, Expr::kBinary, {"**"});
}

absl::StatusOr<ExprPtr> ExprParser::Unary(bool filters) {
  ExprPtr value;
  if (peek().Is(Token::kSymbol, "-") || peek().Is(Token::kSymbol, "+")) {
    if (++depth_ > kMaxDepth) return Error("nested too deeply");
    const std::string symbol = Next().text;
    PF_ASSIGN_OR_RETURN(value, Unary(false));
    PF_ASSIGN_OR_RETURN(value, Make(Expr::kUnary, symbol, std::move(value)));
    --depth_;
  } else {
    PF_ASSIGN_OR_RETURN(value, Primary());
  }
  PF_ASSIGN_OR_RETURN(value, Postfix(std::move(value)));
  return filters ? FiltersAndTests(std::move(value)) : std::move(value);
}

absl::StatusOr<ExprPtr> ExprParser::Primary() {
  const Token token = peek();
  switch (token.kind) {
    case Token::kString: {
      std::string text;
      while (peek().kind == Token::kString) text += Next().text;
      return Literal(Value(std::move(text)), token.line);
    }
    case Token::kInteger:
      Next();
      return Literal(Value(token.integer), token.line);
    case Token::kFloat:
      Next();
      return Literal(Value(token.real), token.line);
    case Token::kName:
      Next();
      if (token.text == "true" || token.text == "True") return Literal(Value(true), token.line);
      if (token.text == "false" || token.text == "False") return Literal(Value(false), token.line);
      if (token.text == "none" || token.text == "None") return Literal(Value(None()), token.line);
      return Make(Expr::kName, token.text, nullptr);
    default:
      break;
  }
  if (TakeSymbol("(")) return Parenthesised();
  if (TakeSymbol("[")) return ListLiteral();
  if (TakeSymbol("{")) return DictLiteral();
  return Expect(Token::kName, "", "an expression");
}

absl::StatusOr<ExprPtr> ExprParser::Parenthesised() {
  if (TakeSymbol(")")) return Make(Expr::kList, "tuple", nullptr);
  PF_ASSIGN_OR_RETURN(ExprPtr value, Tuple());
  PF_RETURN_IF_ERROR(Expect(Token::kSymbol, ")", "\")\""));
  return value;
}

absl::StatusOr<ExprPtr> ExprParser::ListLiteral() {
  PF_ASSIGN_OR_RETURN(ExprPtr list, Make(Expr::kList, "", nullptr));
  while (!TakeSymbol("]")) {
    PF_ASSIGN_OR_RETURN(list->parts.emplace_back(), Expression());
    if (!peek().Is(Token::kSymbol, "]")) PF_RETURN_IF_ERROR(Expect(Token::kSymbol, ",", "\",\""));
  }
  return Checked(std::move(list));
}

absl::StatusOr<ExprPtr> ExprParser::DictLiteral() {
  PF_ASSIGN_OR_RETURN(ExprPtr dict, Make(Expr::kDict, "", nullptr));
  while (!TakeSymbol("}")) {
    PF_ASSIGN_OR_RETURN(dict->parts.emplace_back(), Expression());
    PF_RETURN_IF_ERROR(Expect(Token::kSymbol, ":", "\":\""));
    PF_ASSIGN_OR_RETURN(dict->parts.emplace_back(), Expression());
    if (!peek().Is(Token::kSymbol, "}")) PF_RETURN_IF_ERROR(Expect(Token::kSymbol, ",", "\",\""));
  }
  return Checked(std::move(dict));
}

absl::StatusOr<ExprPtr> ExprParser::Postfix(ExprPtr expr) {
  while (true) {
    if (TakeSymbol(".")) {
      PF_ASSIGN_OR_RETURN(expr, Attribute(std::move(expr)));
    } else if (TakeSymbol("[")) {
      PF_ASSIGN_OR_RETURN(expr, Subscript(std::move(expr)));
    } else if (TakeSymbol("(")) {
      PF_ASSIGN_OR_RETURN(expr, Call(std::move(expr)));
    } else {
      return expr;
    }
  }
}

absl::StatusOr<ExprPtr> ExprParser::Attribute(ExprPtr object) {
  if (peek().kind == Token::kInteger) {
    ExprPtr place = Literal(Value(peek().integer), peek().line);
    Next();
    return Make(Expr::kItem, "", std::move(object), std::move(place));
  }
  PF_ASSIGN_OR_RETURN(std::string name, Name());
  return Make(Expr::kAttribute, std::move(name), std::move(object));
}

absl::StatusOr<ExprPtr> ExprParser::Subscript(ExprPtr object) {
  std::vector<ExprPtr> parts(1);
  int colons = 0;
  while (!TakeSymbol("]")) {
    if (TakeSymbol(":")) {
      if (++colons > 2) return Error("a slice of four parts");
      parts.emplace_back();
      continue;
    }
    if (parts.back()) return Expect(Token::kSymbol, "]", "\"]\"");
    PF_ASSIGN_OR_RETURN(parts.back(), Expression());
  }
  if (colons == 0) {
    if (!parts[0]) return Error("[] without an index");
    return Make(Expr::kItem, "", std::move(object), std::move(parts[0]));
  }
  PF_ASSIGN_OR_RETURN(ExprPtr slice, Make(Expr::kSlice, "", std::move(object)));
  parts.resize(3);
  for (ExprPtr& part : parts) slice->parts.push_back(std::move(part));
  return Checked(std::move(slice));
}

absl::StatusOr<ExprPtr> ExprParser::Call(ExprPtr function) {
  PF_ASSIGN_OR_RETURN(ExprPtr call, Make(Expr::kCall, "", std::move(function)));
  PF_RETURN_IF_ERROR(CallArguments(*call));
  return Checked(std::move(call));
}

absl::Status ExprParser::CallArguments(Expr& call) {
  while (!TakeSymbol(")")) {
    const bool named = peek().kind == Token::kName && tokens_[at_ + 1].Is(Token::kSymbol, "=");
    if (TakeSymbol("**")) {
      PF_ASSIGN_OR_RETURN(call.named.emplace_back().second, Expression());
    } else if (TakeSymbol("*")) {
      PF_ASSIGN_OR_RETURN(ExprPtr value, Expression());
      PF_ASSIGN_OR_RETURN(call.parts.emplace_back(), Make(Expr::kSpread, "", std::move(value)));
    } else if (named) {
      std::string name = Next().text;
      Next();
      PF_ASSIGN_OR_RETURN(ExprPtr value, Expression());
      call.named.emplace_back(std::move(name), std::move(value));
    } else if (!call.named.empty()) {
      return Error("an argument without a name behind one with a name");
    } else {
      PF_ASSIGN_OR_RETURN(call.parts.emplace_back(), Expression());
    }
    if (!peek().Is(Token::kSymbol, ")")) PF_RETURN_IF_ERROR(Expect(Token::kSymbol, ",", "\",\""));
  }
  return absl::OkStatus();
}

absl::StatusOr<ExprPtr> ExprParser::FiltersAndTests(ExprPtr expr) {
  while (true) {
    if (TakeSymbol("|")) {
      PF_ASSIGN_OR_RETURN(expr, Filter(std::move(expr)));
    } else if (TakeName("is")) {
      PF_ASSIGN_OR_RETURN(expr, Test(std::move(expr)));
    } else if (TakeSymbol("(")) {
      PF_ASSIGN_OR_RETURN(expr, Call(std::move(expr)));
    } else {
      return expr;
    }
  }
}

absl::StatusOr<ExprPtr> ExprParser::Filters(ExprPtr value) {
  do {
    PF_ASSIGN_OR_RETURN(value, Filter(std::move(value)));
  } while (TakeSymbol("|"));
  return value;
}

absl::StatusOr<ExprPtr> ExprParser::Filter(ExprPtr value) {
  PF_ASSIGN_OR_RETURN(std::string name, Name());
  PF_ASSIGN_OR_RETURN(ExprPtr filter, Make(Expr::kFilter, std::move(name), std::move(value)));
  if (TakeSymbol("(")) PF_RETURN_IF_ERROR(CallArguments(*filter));
  return Checked(std::move(filter));
}

absl::StatusOr<ExprPtr> ExprParser::Test(ExprPtr value) {
  const bool negated = TakeName("not");
  PF_ASSIGN_OR_RETURN(std::string name, Name());
  PF_ASSIGN_OR_RETURN(ExprPtr test, Make(Expr::kTest, std::move(name), std::move(value)));
  const Token& next = peek();
  const bool operand = next.kind == Token::kString || next.kind == Token::kInteger ||
                       next.kind == Token::kFloat || next.Is(Token::kSymbol, "[") ||
                       next.Is(Token::kSymbol, "{") ||
                       (next.kind == Token::kName && next.text != "else" && next.text != "or" &&
                        next.text != "and" && next.text != "is" && next.text != "if" &&
                        next.text != "not" && next.text != "in");
  if (TakeSymbol("(")) {
    PF_RETURN_IF_ERROR(CallArguments(*test));
  } else if (operand) {
    PF_ASSIGN_OR_RETURN(ExprPtr argument, Primary());
    PF_ASSIGN_OR_RETURN(test->parts.emplace_back(), Postfix(std::move(argument)));
  }
  PF_ASSIGN_OR_RETURN(test, Checked(std::move(test)));
  if (!negated) return test;
  return Make(Expr::kUnary, "not", std::move(test));
}

}  // namespace pagefuse::chat_template
