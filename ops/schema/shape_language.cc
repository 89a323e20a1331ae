// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/schema/shape_language.h"

#include <algorithm>
#include <cctype>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

using Op = SizeExpression::Op;

bool IsNameStart(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool IsDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// Reads one text from front to back. A ':' ends what is checked: the rest is for the reader.
class Parser {
 public:
  Parser(std::string_view text, SizeNames& names) : text_(text), names_(names) { Next(); }

  absl::StatusOr<ShapePattern> Shape() {
    ShapePattern shape;
    if (Accept("as")) {
      PF_ASSIGN_OR_RETURN(shape.as, Name());
    } else if (token_ == "[") {
      PF_RETURN_IF_ERROR(Lists(shape));
    }
    while (Accept(",")) {
      PF_ASSIGN_OR_RETURN(Relation relation, ReadRelation());
      shape.relations.push_back(std::move(relation));
    }
    PF_RETURN_IF_ERROR(End());
    return shape;
  }

  absl::StatusOr<PortCondition> WholeCondition() {
    PF_ASSIGN_OR_RETURN(PortCondition condition, ReadCondition());
    PF_RETURN_IF_ERROR(End());
    return condition;
  }

  // `read` one, or several with conditions.
  template <typename T, typename Read>
  absl::StatusOr<Choice<T>> Choices(const Read& read) {
    PF_ASSIGN_OR_RETURN(T first, read());
    Choice<T> choice;
    PF_RETURN_IF_ERROR(More(std::move(first), read, choice));
    PF_RETURN_IF_ERROR(End());
    return choice;
  }

  absl::StatusOr<SizeExpression> Sum() {
    PF_ASSIGN_OR_RETURN(SizeExpression left, Product());
    while (token_ == "+" || token_ == "-") {
      const Op op = token_ == "+" ? Op::kAdd : Op::kSubtract;
      Next();
      PF_ASSIGN_OR_RETURN(const SizeExpression right, Product());
      Append(op, right, left);
    }
    return left;
  }

  absl::StatusOr<std::string> Name() {
    if (token_.empty() || !IsNameStart(token_[0])) return Unexpected("a name");
    std::string name(token_);
    Next();
    return name;
  }

 private:
  void Next() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    start_ = at_;
    const std::string_view rest = text_.substr(at_);
    size_t length = rest.empty() || rest[0] == ':' ? 0 : 1;
    if (length > 0 && IsNameStart(rest[0])) {
      while (length < rest.size() && (IsNameStart(rest[length]) || IsDigit(rest[length]))) ++length;
      while (length < rest.size() && rest[length] == '\'') ++length;
    } else if (length > 0 && IsDigit(rest[0])) {
      while (length < rest.size() && IsDigit(rest[length])) ++length;
    } else if (rest.starts_with("...")) {
      length = rest.starts_with("...'") ? 4 : 3;
    } else if (rest.starts_with("<=") || rest.starts_with(">=")) {
      length = 2;
    }
    token_ = rest.substr(0, length);
    at_ += length;
  }

  bool Accept(std::string_view token) {
    if (token_ != token) return false;
    Next();
    return true;
  }

  // What was read since `start`.
  std::string Since(size_t start) const {
    size_t end = start_;
    while (end > start && text_[end - 1] == ' ') --end;
    return std::string(text_.substr(start, end - start));
  }

  absl::Status Unexpected(std::string_view expected) const {
    return absl::InvalidArgumentError(
        StrCat("\"", text_, "\": expected ", expected, " at ", start_ + 1, ", got ",
               token_.empty() ? "the end" : StrCat("\"", token_, "\"")));
  }

  absl::Status End() const { return token_.empty() ? absl::OkStatus() : Unexpected("the end"); }

  absl::Status Expect(std::string_view token) {
    return Accept(token) ? absl::OkStatus() : Unexpected(StrCat("\"", token, "\""));
  }

  absl::Status Lists(ShapePattern& shape) {
    PF_ASSIGN_OR_RETURN(DimList first, List());
    if (token_ == "if")
      return More(
          std::move(first), [this] { return List(); }, shape.chosen);
    shape.any.push_back(std::move(first));
    while (token_ == "or" || (token_ == "," && NextIs('['))) {
      Next();
      PF_ASSIGN_OR_RETURN(DimList list, List());
      shape.any.push_back(std::move(list));
    }
    return absl::OkStatus();
  }

  // The next token but one begins with `c`.
  bool NextIs(char c) const {
    const size_t next = text_.find_first_not_of(' ', at_);
    return next != std::string_view::npos && text_[next] == c;
  }

  // After the first: " if c", then ", x if c" and ", else x".
  template <typename T, typename Read>
  absl::Status More(T first, const Read& read, Choice<T>& choice) {
    if (!Accept("if")) {
      choice.emplace_back(std::nullopt, std::move(first));
      return absl::OkStatus();
    }
    PF_ASSIGN_OR_RETURN(PortCondition condition, ReadCondition());
    choice.emplace_back(std::move(condition), std::move(first));
    PF_RETURN_IF_ERROR(Expect(","));
    const bool last = Accept("else");
    PF_ASSIGN_OR_RETURN(T next, read());
    if (!last && token_ != "if") return Unexpected("\"if\"");
    if (!last) return More(std::move(next), read, choice);
    choice.emplace_back(std::nullopt, std::move(next));
    return absl::OkStatus();
  }

  absl::StatusOr<PortCondition> ReadCondition() {
    PortCondition condition;
    condition.negated = Accept("not");
    PF_ASSIGN_OR_RETURN(condition.name, Name());
    if (!Accept("=")) return condition;
    if (token_.empty() || (!IsNameStart(token_[0]) && !IsDigit(token_[0]))) {
      return Unexpected("a value");
    }
    condition.value = std::string(token_);
    Next();
    return condition;
  }

  absl::StatusOr<DimList> List() {
    const size_t start = start_;
    PF_RETURN_IF_ERROR(Expect("["));
    DimList list;
    while (token_ != "]") {
      if (list.size() > 0 || !list.rest.empty()) PF_RETURN_IF_ERROR(Expect(","));
      if (token_.starts_with("...")) {
        if (!list.rest.empty()) return Unexpected("a size");
        list.rest = std::string(token_);
        Next();
        continue;
      }
      PF_ASSIGN_OR_RETURN(SizeExpression size, Sum());
      (list.rest.empty() ? list.before : list.after).push_back(std::move(size));
    }
    PF_RETURN_IF_ERROR(Expect("]"));
    list.text = Since(start);
    return list;
  }

  absl::StatusOr<Relation> ReadRelation() {
    const size_t start = start_;
    Relation relation;
    PF_ASSIGN_OR_RETURN(relation.left, Sum());
    if (Accept("<=")) {
      relation.kind = Relation::Kind::kAtMost;
    } else if (Accept(">=")) {
      relation.kind = Relation::Kind::kAtLeast;
    } else {
      PF_RETURN_IF_ERROR(Expect("="));
    }
    PF_ASSIGN_OR_RETURN(relation.right, Sum());
    relation.text = Since(start);
    return relation;
  }

  absl::StatusOr<SizeExpression> Product() {
    PF_ASSIGN_OR_RETURN(SizeExpression left, PowerOf());
    while (token_ == "*" || token_ == "/" || token_ == "%") {
      const Op op = token_ == "*" ? Op::kMultiply : token_ == "/" ? Op::kDivide : Op::kModulo;
      Next();
      PF_ASSIGN_OR_RETURN(const SizeExpression right, PowerOf());
      Append(op, right, left);
    }
    return left;
  }

  absl::StatusOr<SizeExpression> PowerOf() {
    PF_ASSIGN_OR_RETURN(SizeExpression left, Operand());
    if (!Accept("^")) return left;
    PF_ASSIGN_OR_RETURN(const SizeExpression right, Operand());
    Append(Op::kPower, right, left);
    return left;
  }

  absl::StatusOr<SizeExpression> Operand() {
    if (Accept("(")) {
      PF_ASSIGN_OR_RETURN(SizeExpression inner, Sum());
      PF_RETURN_IF_ERROR(Expect(")"));
      return inner;
    }
    SizeExpression operand;
    SizeExpression::Term& term = operand.terms.emplace_back();
    if (!token_.empty() && IsDigit(token_[0])) {
      if (!absl::SimpleAtoi(AbslView(token_), &term.number)) return Unexpected("a smaller number");
      Next();
      return operand;
    }
    PF_ASSIGN_OR_RETURN(const std::string name, Name());
    term.op = Op::kName;
    term.name = Intern(name);
    return operand;
  }

  int Intern(const std::string& name) {
    const auto it = std::find(names_.begin(), names_.end(), name);
    const auto index = static_cast<int>(it - names_.begin());
    if (it == names_.end()) names_.push_back(name);
    return index;
  }

  // left becomes `left op right`.
  static void Append(Op op, const SizeExpression& right, SizeExpression& left) {
    const int offset = static_cast<int>(left.terms.size());
    for (SizeExpression::Term term : right.terms) {
      if (term.left >= 0) term.left += offset;
      if (term.right >= 0) term.right += offset;
      left.terms.push_back(term);
    }
    left.terms.push_back(
        {.op = op, .left = offset - 1, .right = static_cast<int>(left.terms.size()) - 1});
  }

  std::string_view text_;
  SizeNames& names_;
  std::string_view token_;  // empty at the end
  size_t start_ = 0;        // of the token
  size_t at_ = 0;           // behind it
};

}  // namespace

absl::StatusOr<ShapePattern> ParseShapePattern(std::string_view text, SizeNames& names) {
  return Parser(text, names).Shape();
}

absl::StatusOr<Choice<SizeExpression>> ParseSizes(std::string_view text, SizeNames& names) {
  Parser parser(text, names);
  return parser.Choices<SizeExpression>([&] { return parser.Sum(); });
}

absl::StatusOr<Choice<std::string>> ParseTypes(std::string_view text) {
  SizeNames none;
  Parser parser(text, none);
  return parser.Choices<std::string>([&] { return parser.Name(); });
}

absl::StatusOr<PortCondition> ParseCondition(std::string_view text) {
  SizeNames none;
  return Parser(text, none).WholeCondition();
}

std::string ToString(const PortCondition& condition) {
  return StrCat(condition.negated ? "not " : "", condition.name, condition.value ? " = " : "",
                condition.value.value_or(""));
}

}  // namespace pagefuse
