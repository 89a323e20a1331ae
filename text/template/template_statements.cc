// SPDX-License-Identifier: Apache-2.0
// Statements of chat templates.
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/text/template/template_parser.h"

namespace pagefuse::chat_template {
namespace {

constexpr int kMaxDepth = 100;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : parser_(std::move(tokens)) {}

  absl::StatusOr<Body> Run() {
    PF_ASSIGN_OR_RETURN(Body body, Statements({}));
    return body;
  }

 private:
  using StatementPtr = std::unique_ptr<Statement>;

  StatementPtr Make(Statement::Kind kind) const {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    statement->line = parser_.peek().line;
    return statement;
  }
  absl::Status BlockEnd() { return parser_.Expect(Token::kBlockEnd, "", "the end of the tag"); }

  // Up to a block that begins with one of the words, which is left; without words up to the end.
  absl::StatusOr<Body> Statements(std::initializer_list<std::string_view> ends) {
    if (++depth_ > kMaxDepth) return parser_.Error("nested too deeply");
    Body body;
    while (true) {
      const Token token = parser_.Next();
      if (token.kind == Token::kEnd) {
        if (ends.size() > 0)
          return parser_.Error(StrCat("expected \"", *(ends.end() - 1), "\", got the end"));
        break;
      }
      if (token.kind == Token::kBlockBegin) {
        if (std::find(ends.begin(), ends.end(), parser_.peek().text) != ends.end()) break;
        PF_ASSIGN_OR_RETURN(body.emplace_back(), Block());
        continue;
      }
      body.push_back(Make(token.kind == Token::kText ? Statement::kText : Statement::kPrint));
      if (token.kind == Token::kText) {
        body.back()->text = MarkedText(token.text);
        continue;
      }
      PF_ASSIGN_OR_RETURN(body.back()->value, parser_.Tuple());
      PF_RETURN_IF_ERROR(parser_.Expect(Token::kPrintEnd, "", "\"}}\""));
    }
    --depth_;
    return body;
  }

  absl::StatusOr<StatementPtr> Block() {
    PF_ASSIGN_OR_RETURN(const std::string word, parser_.Name());
    if (word == "if") return If();
    if (word == "for") return For();
    if (word == "set") return Set();
    if (word == "macro") return Macro();
    if (word == "filter") return FilterBlock();
    if (word == "call") return CallBlock();
    if (word == "with") return With();
    if (word == "generation") return Group("endgeneration");
    if (word == "break") return Alone(Statement::kBreak);
    if (word == "continue") return Alone(Statement::kContinue);
    return absl::UnimplementedError(
        StrCat("line ", parser_.peek().line,
               ": expected if, for, set, macro, call, filter, with, break, continue or "
               "generation, got \"",
               word, "\""));
  }

  absl::StatusOr<StatementPtr> Alone(Statement::Kind kind) {
    if (loops_ == 0) return parser_.Error("break and continue belong into a loop");
    PF_RETURN_IF_ERROR(BlockEnd());
    return Make(kind);
  }

  absl::StatusOr<StatementPtr> If() {
    StatementPtr statement = Make(Statement::kIf);
    while (true) {
      PF_ASSIGN_OR_RETURN(ExprPtr condition, parser_.Tuple(/*conditional=*/false));
      PF_RETURN_IF_ERROR(BlockEnd());
      PF_ASSIGN_OR_RETURN(Body body, Statements({"elif", "else", "endif"}));
      statement->branches.emplace_back(std::move(condition), std::move(body));
      if (parser_.Take(Token::kName, "elif")) continue;
      if (parser_.Take(Token::kName, "else")) {
        PF_RETURN_IF_ERROR(BlockEnd());
        PF_ASSIGN_OR_RETURN(statement->otherwise, Statements({"endif"}));
      }
      parser_.Next();
      PF_RETURN_IF_ERROR(BlockEnd());
      return statement;
    }
  }

  absl::StatusOr<StatementPtr> For() {
    StatementPtr statement = Make(Statement::kFor);
    PF_ASSIGN_OR_RETURN(statement->targets, Targets());
    PF_RETURN_IF_ERROR(parser_.Expect(Token::kName, "in", "\"in\""));
    PF_ASSIGN_OR_RETURN(statement->value, parser_.Tuple(/*conditional=*/false));
    if (parser_.Take(Token::kName, "if")) {
      PF_ASSIGN_OR_RETURN(statement->condition, parser_.Expression());
    }
    statement->recursive = parser_.Take(Token::kName, "recursive");
    PF_RETURN_IF_ERROR(BlockEnd());
    ++loops_;
    PF_ASSIGN_OR_RETURN(statement->body, Statements({"else", "endfor"}));
    --loops_;
    if (parser_.Take(Token::kName, "else")) {
      PF_RETURN_IF_ERROR(BlockEnd());
      PF_ASSIGN_OR_RETURN(statement->otherwise, Statements({"endfor"}));
    }
    parser_.Next();
    PF_RETURN_IF_ERROR(BlockEnd());
    return statement;
  }

  absl::StatusOr<StatementPtr> Set() {
    StatementPtr statement = Make(Statement::kSet);
    PF_ASSIGN_OR_RETURN(statement->targets, Targets());
    if (parser_.Take(Token::kSymbol, "=")) {
      PF_ASSIGN_OR_RETURN(statement->value, parser_.Tuple());
      PF_RETURN_IF_ERROR(BlockEnd());
      return statement;
    }
    if (statement->targets.size() > 1) return parser_.Error("a block is set to one name");
    statement->kind = Statement::kSetBlock;
    if (parser_.Take(Token::kSymbol, "|")) {
      PF_ASSIGN_OR_RETURN(statement->value, parser_.Filters(std::make_unique<Expr>()));
    }
    return Enclosed(std::move(statement), "endset");
  }

  absl::StatusOr<StatementPtr> Macro() {
    StatementPtr statement = Make(Statement::kMacro);
    PF_ASSIGN_OR_RETURN(statement->name, parser_.Name());
    PF_RETURN_IF_ERROR(parser_.Expect(Token::kSymbol, "(", "\"(\""));
    PF_RETURN_IF_ERROR(Parameters(*statement));
    return Callable(std::move(statement), "endmacro");
  }

  // Behind the opening bracket.
  absl::Status Parameters(Statement& statement) {
    while (!parser_.Take(Token::kSymbol, ")")) {
      PF_ASSIGN_OR_RETURN(std::string name, parser_.Name());
      ExprPtr otherwise;
      if (parser_.Take(Token::kSymbol, "=")) {
        PF_ASSIGN_OR_RETURN(otherwise, parser_.Expression());
      }
      statement.parameters.emplace_back(std::move(name), std::move(otherwise));
      if (!parser_.peek().Is(Token::kSymbol, ")")) {
        PF_RETURN_IF_ERROR(parser_.Expect(Token::kSymbol, ",", "\",\""));
      }
    }
    return absl::OkStatus();
  }

  // The body of what can be called: a loop around it is not the body's own.
  absl::StatusOr<StatementPtr> Callable(StatementPtr statement, std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    const size_t first = parser_.place();
    PF_ASSIGN_OR_RETURN(statement, Enclosed(std::move(statement), end));
    loops_ = loops;
    statement->takes_caller = parser_.Mentions(first, "caller");
    statement->takes_more = parser_.Mentions(first, "varargs");
    statement->takes_more_named = parser_.Mentions(first, "kwargs");
    return statement;
  }

  // {% call(x) m(y) %}...{% endcall %}: m may ask for the body by caller(x).
  absl::StatusOr<StatementPtr> CallBlock() {
    StatementPtr statement = Make(Statement::kCallBlock);
    if (parser_.Take(Token::kSymbol, "(")) PF_RETURN_IF_ERROR(Parameters(*statement));
    PF_ASSIGN_OR_RETURN(statement->value, parser_.Expression());
    if (statement->value->kind != Expr::kCall) return parser_.Error("call: expected a call");
    return Callable(std::move(statement), "endcall");
  }

  absl::StatusOr<StatementPtr> With() {
    StatementPtr statement = Make(Statement::kWith);
    while (parser_.peek().kind != Token::kBlockEnd) {
      auto& [name, value] = statement->parameters.emplace_back();
      PF_ASSIGN_OR_RETURN(name, parser_.Name());
      PF_RETURN_IF_ERROR(parser_.Expect(Token::kSymbol, "=", "\"=\""));
      PF_ASSIGN_OR_RETURN(value, parser_.Expression());
      if (!parser_.Take(Token::kSymbol, ",")) break;
    }
    return Enclosed(std::move(statement), "endwith");
  }

  // One or several, with commas between them.
  absl::StatusOr<std::vector<Target>> Targets() {
    std::vector<Target> targets;
    do {
      PF_ASSIGN_OR_RETURN(targets.emplace_back(), OneTarget());
    } while (parser_.Take(Token::kSymbol, ","));
    return targets;
  }

  absl::StatusOr<Target> OneTarget() {
    Target target;
    if (parser_.Take(Token::kSymbol, "(")) {
      if (++depth_ > kMaxDepth) return parser_.Error("nested too deeply");
      PF_ASSIGN_OR_RETURN(target.parts, Targets());
      --depth_;
      PF_RETURN_IF_ERROR(parser_.Expect(Token::kSymbol, ")", "\")\""));
      return target.parts.size() == 1 ? Target(target.parts[0]) : target;
    }
    PF_ASSIGN_OR_RETURN(target.name, parser_.Name());
    if (parser_.Take(Token::kSymbol, ".")) {
      PF_ASSIGN_OR_RETURN(target.attribute, parser_.Name());
    }
    return target;
  }

  absl::StatusOr<StatementPtr> FilterBlock() {
    StatementPtr statement = Make(Statement::kFilterBlock);
    PF_ASSIGN_OR_RETURN(statement->value, parser_.Filters(std::make_unique<Expr>()));
    return Enclosed(std::move(statement), "endfilter");
  }

  absl::StatusOr<StatementPtr> Group(std::string_view end) {
    return Enclosed(Make(Statement::kGroup), end);
  }

  // The rest of the tag, the body, and the tag that ends it, which may repeat the name.
  absl::StatusOr<StatementPtr> Enclosed(StatementPtr statement, std::string_view end) {
    PF_RETURN_IF_ERROR(BlockEnd());
    PF_ASSIGN_OR_RETURN(statement->body, Statements({end}));
    parser_.Next();
    if (!statement->name.empty()) parser_.Take(Token::kName, statement->name);
    PF_RETURN_IF_ERROR(BlockEnd());
    return statement;
  }

  ExprParser parser_;
  int depth_ = 0, loops_ = 0;
};

}  // namespace

absl::StatusOr<Body> ParseTemplate(std::string_view source) {
  PF_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return Parser(std::move(tokens)).Run();
}

}  // namespace pagefuse::chat_template
