// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/rewrite/condition_text.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text_lexer.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/similar_names.h"

namespace pagefuse {
namespace {

using Expression = ConditionExpression;
using Kind = Expression::Kind;

// The lexer knows no `!` and no `%`.
bool IsSign(const Token& token, std::string_view sign) {
  return token.Is(sign) || (token.kind == TokenKind::kError && token.text == sign);
}

class Parser {
 public:
  Parser(std::string_view text, const ConditionFunctions& functions, const PlaceError& error)
      : text_(text), lexer_(text), functions_(functions), error_(error) {}

  absl::StatusOr<std::vector<ParsedCondition>> Conditions() {
    std::vector<ParsedCondition> conditions;
    do {
      const size_t begin = OffsetOf(lexer_.Peek(), text_);
      names_.clear();
      PF_ASSIGN_OR_RETURN(Expression expression, ParseCondition());
      const std::string name(
          absl::StripAsciiWhitespace(AbslView(text_.substr(begin, end_ - begin))));
      conditions.push_back({MakeCondition(name, std::move(expression)), names_});
    } while (Take(","));
    PF_RETURN_IF_ERROR(AtEnd());
    return conditions;
  }

  absl::StatusOr<ParsedDerivation> OneDerivation() {
    PF_RETURN_IF_ERROR(Expect("@"));
    const Token name = Next();
    if (name.kind != TokenKind::kIdentifier) return Unexpected(name, "the name of an attribute");
    PF_RETURN_IF_ERROR(Expect("="));
    PF_ASSIGN_OR_RETURN(Expression expression, ParseElse());
    PF_RETURN_IF_ERROR(AtEnd());
    return ParsedDerivation{std::string(name.text),
                            MakeDerivation(std::string(name.text), std::move(expression)), names_};
  }

 private:
  Token Next() {
    const Token token = lexer_.Next();
    if (token.kind != TokenKind::kEnd) end_ = OffsetOf(token, text_) + token.text.size();
    return token;
  }
  bool Take(std::string_view punctuation) {
    if (!lexer_.Peek().Is(punctuation)) return false;
    Next();
    return true;
  }
  bool TakeWord(std::string_view word) {
    if (lexer_.Peek().kind != TokenKind::kIdentifier || lexer_.Peek().text != word) return false;
    Next();
    return true;
  }
  absl::Status Unexpected(const Token& token, std::string_view expected) const {
    return UnexpectedToken(token, expected, text_, error_);
  }
  absl::Status Expect(std::string_view punctuation) {
    if (Take(punctuation)) return absl::OkStatus();
    return Unexpected(lexer_.Peek(), StrCat("\"", punctuation, "\""));
  }
  absl::Status AtEnd() const {
    if (lexer_.Peek().kind == TokenKind::kEnd) return absl::OkStatus();
    return Unexpected(lexer_.Peek(), "the end");
  }

  absl::StatusOr<Expression> ParseCondition() {
    const Token start = lexer_.Peek();
    if (TakeWord("not")) {
      if (++depth_ > kMaxDepth) return Unexpected(lexer_.Peek(), "less nesting");
      PF_ASSIGN_OR_RETURN(Expression inner, ParseCondition());
      --depth_;
      return Expression{.kind = Kind::kNot, .operands = {std::move(inner)}};
    }
    PF_ASSIGN_OR_RETURN(Expression left, ParseSum());
    if (TakeWord("in")) return ParseList(std::move(left));
    const std::string op = TakeComparison();
    if (!op.empty()) {
      PF_ASSIGN_OR_RETURN(Expression right, ParseSum());
      return Operator(op, std::move(left), std::move(right));
    }
    if (left.kind == Kind::kCall) return left;
    return error_(text_.substr(OffsetOf(start, text_)), "a condition compares something");
  }

  std::string TakeComparison() {
    if (lexer_.Peek().Is("=>")) return "";
    std::string op;
    for (std::string_view first : {"=", "!", "<", ">"}) {
      if (!IsSign(lexer_.Peek(), first)) continue;
      if (lexer_.Peek(1).Is("=")) {
        Next();
        Next();
        return std::string(first) + "=";
      }
      if (first == "<" || first == ">") {
        Next();
        return std::string(first);
      }
    }
    return op;
  }

  // Types, numbers or, before those, functions of values. What stands behind a comma and no comma or
  // end behind it is a condition.
  absl::StatusOr<Expression> ParseList(Expression value) {
    Expression list{.kind = Kind::kIn, .operands = {std::move(value)}};
    while (true) {
      if (lexer_.Peek().kind == TokenKind::kIdentifier && !lexer_.Peek(1).Is("(")) {
        list.operands.push_back(Literal(std::string(Next().text)));
      } else {
        PF_ASSIGN_OR_RETURN(Expression member, ParseUnary());
        list.operands.push_back(std::move(member));
      }
      const Token& after = lexer_.Peek(2);
      const bool goes_on = lexer_.Peek().Is(",") &&
                           lexer_.Peek(1).kind != TokenKind::kPunctuation &&
                           (after.Is(",") || after.kind == TokenKind::kEnd);
      if (!goes_on) return list;
      Next();
    }
  }

  absl::StatusOr<Expression> ParseElse() {
    PF_ASSIGN_OR_RETURN(Expression value, ParseSum());
    if (!TakeWord("else")) return value;
    PF_ASSIGN_OR_RETURN(Expression other, ParseElse());
    return Expression{.kind = Kind::kElse, .operands = {std::move(value), std::move(other)}};
  }

  absl::StatusOr<Expression> ParseSum() {
    PF_ASSIGN_OR_RETURN(Expression left, ParseProduct());
    while (lexer_.Peek().Is("+") || lexer_.Peek().Is("-")) {
      const std::string op(Next().text);
      PF_ASSIGN_OR_RETURN(Expression right, ParseProduct());
      left = Operator(op, std::move(left), std::move(right));
    }
    return left;
  }

  absl::StatusOr<Expression> ParseProduct() {
    PF_ASSIGN_OR_RETURN(Expression left, ParseUnary());
    while (true) {
      const Token& token = lexer_.Peek();
      if (!token.Is("*") && !token.Is("/") && !token.Is("//") && !IsSign(token, "%")) return left;
      const std::string op(Next().text);
      PF_ASSIGN_OR_RETURN(Expression right, ParseUnary());
      left = Operator(op, std::move(left), std::move(right));
    }
  }

  absl::StatusOr<Expression> ParseUnary() {
    if (++parts_ > kMaxParts) return Unexpected(lexer_.Peek(), "fewer parts");
    if (++depth_ > kMaxDepth) return Unexpected(lexer_.Peek(), "less nesting");
    absl::StatusOr<Expression> result = Take("-") ? Negated() : ParsePrimary();
    --depth_;
    return result;
  }

  absl::StatusOr<Expression> Negated() {
    PF_ASSIGN_OR_RETURN(Expression operand, ParseUnary());
    return Operator("-", Literal(Dim(0)), std::move(operand));
  }

  absl::StatusOr<Expression> ParsePrimary() {
    const Token token = Next();
    if (token.kind == TokenKind::kInteger) {
      int64_t number = 0;
      if (absl::SimpleAtoi(AbslView(token.text), &number)) return Literal(Dim(number));
    }
    if (token.kind == TokenKind::kFloat) {
      double number = 0;
      if (absl::SimpleAtod(AbslView(token.text), &number)) return Literal(number);
    }
    if (token.kind == TokenKind::kString) return Literal(StringValue(token));
    if (token.Is("(")) {
      PF_ASSIGN_OR_RETURN(Expression inner, ParseSum());
      PF_RETURN_IF_ERROR(Expect(")"));
      return inner;
    }
    if (token.Is("@")) {
      const Token name = Next();
      if (name.kind != TokenKind::kIdentifier) return Unexpected(name, "the name of an attribute");
      return Expression{.kind = Kind::kAttribute, .name = std::string(name.text)};
    }
    if (token.kind == TokenKind::kIdentifier) return ParseCall(token);
    return Unexpected(token, "a number, an @attribute or a function");
  }

  absl::StatusOr<Expression> ParseCall(const Token& name) {
    std::shared_ptr<const ConditionFunction> function;
    std::vector<std::string> known;
    for (const auto& one : functions_) {
      known.push_back(one->name);
      if (one->name == name.text) function = one;
    }
    if (function == nullptr) {
      return error_(name.text, StrCat("there is no function \"", name.text, "\"",
                                      SimilarNames(name.text, known)));
    }
    Expression call{.kind = Kind::kCall, .name = std::string(name.text), .function = function};
    PF_RETURN_IF_ERROR(Expect("("));
    for (int i = 0; i < function->num_values; ++i) {
      if (i > 0) PF_RETURN_IF_ERROR(Expect(","));
      const Token value = Next();
      if (value.kind != TokenKind::kIdentifier && value.kind != TokenKind::kString) {
        return Unexpected(value, "the name of a value");
      }
      call.values.push_back(value.kind == TokenKind::kString ? StringValue(value)
                                                             : std::string(value.text));
      names_.push_back(value.text);
    }
    if (function->takes_number) {
      PF_RETURN_IF_ERROR(Expect(","));
      PF_ASSIGN_OR_RETURN(Expression number, ParseSum());
      call.operands.push_back(std::move(number));
    }
    PF_RETURN_IF_ERROR(Expect(")"));
    return call;
  }

  static Expression Literal(ConditionValue value) {
    return {.kind = Kind::kLiteral, .literal = std::move(value)};
  }
  static Expression Operator(std::string op, Expression left, Expression right) {
    return {.kind = Kind::kOperator,
            .name = std::move(op),
            .operands = {std::move(left), std::move(right)}};
  }

  static std::string ShapeText(const Value* value) {
    return value == nullptr || !value->shape() ? "[...]" : value->shape()->ToString();
  }

  // The values that a condition which does not hold is about.
  static std::string Found(const Expression& expression, const Match& match) {
    if (expression.kind == Kind::kNot) return Found(expression.operands[0], match);
    if (expression.kind == Kind::kIn) {
      return ConditionValueText(EvaluateCondition(expression.operands[0], match));
    }
    if (expression.kind == Kind::kOperator) {
      return StrCat(ConditionValueText(EvaluateCondition(expression.operands[0], match)), " and ",
                    ConditionValueText(EvaluateCondition(expression.operands[1], match)));
    }
    std::string text;
    for (const std::string& name : expression.values) {
      const Value* value = match.value(name);
      if (!text.empty()) text += " and ";
      if (value == nullptr) {
        StrAppend(&text, "\"", name, "\" is missing");
      } else {
        StrAppend(&text, "\"", value->name(), "\" is ", DataTypeName(value->dtype()),
                  ShapeText(value));
      }
    }
    return text;
  }

  static Condition MakeCondition(const std::string& name, Expression expression) {
    return {name, [name, expression = std::move(expression)](const Match& match) -> absl::Status {
              const ConditionValue value = EvaluateCondition(expression, match);
              const auto* holds = std::get_if<bool>(&value);
              if (holds != nullptr && *holds) return absl::OkStatus();
              return absl::FailedPreconditionError(StrCat(name, ": ", Found(expression, match)));
            }};
  }

  static Derivation MakeDerivation(const std::string& name, Expression expression) {
    return [name, expression = std::move(expression)](Match& match) -> absl::Status {
      if (expression.kind == Kind::kAttribute) {
        const auto found = match.attributes.find(expression.name);
        if (found != match.attributes.end()) {
          const Attribute copy = found->second;
          match.attributes.insert_or_assign(name, copy);
          return absl::OkStatus();
        }
      }
      const ConditionValue value = EvaluateCondition(expression, match);
      if (const auto* dim = std::get_if<Dim>(&value); dim != nullptr && dim->is_constant()) {
        match.attributes.insert_or_assign(name, MakeAttribute(*dim->constant()));
      } else if (const auto* number = std::get_if<double>(&value)) {
        match.attributes.insert_or_assign(name, MakeAttribute(static_cast<float>(*number)));
      } else if (const auto* text = std::get_if<std::string>(&value)) {
        match.attributes.insert_or_assign(name, MakeAttribute(*text));
      } else {
        return absl::FailedPreconditionError(
            StrCat("@", name, ": expected a number, got ", ConditionValueText(value)));
      }
      return absl::OkStatus();
    };
  }

  static constexpr int kMaxDepth = 64;
  static constexpr int kMaxParts = 1024;  // of all, which chains of sums nest one in the other

  std::string_view text_;
  TextLexer lexer_;
  const ConditionFunctions& functions_;
  const PlaceError& error_;
  size_t end_ = 0;  // of the last token
  int depth_ = 0, parts_ = 0;
  std::vector<std::string_view> names_;
};

}  // namespace

absl::StatusOr<std::vector<ParsedCondition>> ParseConditions(std::string_view text,
                                                             const ConditionFunctions& functions,
                                                             const PlaceError& error) {
  return Parser(text, functions, error).Conditions();
}

absl::StatusOr<ParsedDerivation> ParseDerivation(std::string_view text,
                                                 const ConditionFunctions& functions,
                                                 const PlaceError& error) {
  return Parser(text, functions, error).OneDerivation();
}

}  // namespace pagefuse
