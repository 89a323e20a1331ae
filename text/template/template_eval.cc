// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/template/template_eval.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/status_place.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse::chat_template {
absl::Status Evaluator::Raise(std::string_view message) {
  raised_ = true;
  return absl::InvalidArgumentError(AbslView(message));
}

absl::Status Evaluator::ChargeRead(const Value& value, const Arguments& arguments) {
  const auto read = [this](const Value& part) {
    return part.text() ? work_.ChargeRead(part.text()->size()) : absl::OkStatus();
  };
  PF_RETURN_IF_ERROR(read(value));
  for (const Value& part : arguments.positional) PF_RETURN_IF_ERROR(read(part));
  for (const auto& [name, part] : arguments.named) PF_RETURN_IF_ERROR(read(part));
  return absl::OkStatus();
}

absl::StatusOr<Value> Evaluator::Text(MarkedText text) {
  PF_RETURN_IF_ERROR(Charge(text.size()));
  return Value(std::move(text));
}

absl::Status Evaluator::Append(MarkedText& text, const MarkedText& more) {
  PF_RETURN_IF_ERROR(Charge(more.size()));
  if (text.size() + more.size() > Work::kMaxBytes) return Work::TooLong();
  text.Append(more);
  return absl::OkStatus();
}

absl::StatusOr<Value> Evaluator::MakeList(List list) {
  PF_RETURN_IF_ERROR(Charge(list.size() * Work::kBytesAnOperation));
  return Value::Of(std::move(list));
}

Namespace* Evaluator::NewNamespace() {
  return namespaces_.emplace_back(std::make_unique<Namespace>()).get();
}

// The place is added once, where an error arises; not to what the template raised.
absl::Status Evaluator::Located(absl::Status status, int line) const {
  if (status.ok() || raised_ || status.message().substr(0, 5) == "line ") return status;
  return AtPlace(StrCat("line ", line), status);
}

absl::StatusOr<MarkedText> Evaluator::Run(const Body& body) {
  PF_ASSIGN_OR_RETURN([[maybe_unused]] const Flow flow, RunBody(body));
  return std::move(output_);
}

Frame* Evaluator::PushFrame(Frame* around) {
  frame_ = frames_.emplace_back(std::make_unique<Frame>(Frame{.around = around})).get();
  return frame_;
}

// Goes back to the frame `before`, which was the current one when the last was pushed.
void Evaluator::PopFrame(Frame* before) {
  if (frames_.back()->kept) kept_frames_.push_back(std::move(frames_.back()));
  frames_.pop_back();
  frame_ = before;
}

absl::StatusOr<Evaluator::Flow> Evaluator::RunBody(const Body& body) {
  for (const auto& statement : body) {
    PF_RETURN_IF_ERROR(Charge(0));
    auto flow = RunStatement(*statement);
    if (!flow.ok()) return Located(flow.status(), statement->line);
    if (*flow != Flow::kNext) return *flow;
  }
  return Flow::kNext;
}

absl::StatusOr<Evaluator::Flow> Evaluator::RunStatement(const Statement& statement) {
  switch (statement.kind) {
    case Statement::kText:
      PF_RETURN_IF_ERROR(Print(Value(statement.text)));
      return Flow::kNext;
    case Statement::kPrint: {
      PF_ASSIGN_OR_RETURN(const Value value, Eval(*statement.value));
      PF_RETURN_IF_ERROR(Print(value));
      return Flow::kNext;
    }
    case Statement::kIf:
      return RunIf(statement);
    case Statement::kFor:
      return RunFor(statement);
    case Statement::kSet: {
      PF_ASSIGN_OR_RETURN(const Value value, Eval(*statement.value));
      PF_RETURN_IF_ERROR(Bind(statement.targets, value));
      return Flow::kNext;
    }
    case Statement::kSetBlock:
      PF_RETURN_IF_ERROR(RunSetBlock(statement));
      return Flow::kNext;
    case Statement::kMacro:
      Set(statement.name, MakeMacro(statement));
      return Flow::kNext;
    case Statement::kCallBlock:
      PF_RETURN_IF_ERROR(RunCallBlock(statement));
      return Flow::kNext;
    case Statement::kWith:
      return RunWith(statement);
    case Statement::kFilterBlock:
      PF_RETURN_IF_ERROR(RunFilterBlock(statement));
      return Flow::kNext;
    case Statement::kBreak:
      return Flow::kBreak;
    case Statement::kContinue:
      return Flow::kContinue;
    case Statement::kGroup:
      return RunBody(statement.body);
  }
  return Flow::kNext;
}

absl::Status Evaluator::Print(const Value& value) {
  PF_ASSIGN_OR_RETURN(const MarkedText text, value.Print(work_));
  return Append(output_, text);
}

absl::StatusOr<Evaluator::Flow> Evaluator::RunIf(const Statement& statement) {
  for (const auto& [condition, body] : statement.branches) {
    PF_ASSIGN_OR_RETURN(const Value value, Eval(*condition));
    if (value.IsTrue()) return RunBody(body);
  }
  return RunBody(statement.otherwise);
}

absl::Status Evaluator::Assign(const Target& target, Value value) {
  if (!target.parts.empty()) return Unpack(target.parts, value);
  if (target.attribute.empty()) {
    Set(target.name, std::move(value));
    return absl::OkStatus();
  }
  PF_ASSIGN_OR_RETURN(const Value object, EvalName(target.name));
  Namespace* space = object.name_space();
  if (space == nullptr)
    return Wrong(StrCat("\"", target.name, "\": expected a namespace, got ", object.KindName()));
  PF_RETURN_IF_ERROR(Charge(space->members.size()));
  SetNamed(space->members, target.attribute, std::move(value));
  return absl::OkStatus();
}

// One target takes the value, several take its items.
absl::Status Evaluator::Bind(const std::vector<Target>& targets, const Value& value) {
  return targets.size() == 1 ? Assign(targets[0], value) : Unpack(targets, value);
}

absl::Status Evaluator::Unpack(const std::vector<Target>& targets, const Value& value) {
  PF_ASSIGN_OR_RETURN(const List items, Items(value));
  if (items.size() != targets.size()) {
    return Wrong(StrCat("expected ", targets.size(), " values to unpack, got ", items.size()));
  }
  for (size_t i = 0; i < items.size(); ++i) PF_RETURN_IF_ERROR(Assign(targets[i], items[i]));
  return absl::OkStatus();
}

// The values are those of the names around the block.
absl::StatusOr<Evaluator::Flow> Evaluator::RunWith(const Statement& statement) {
  List values;
  for (const auto& [name, value] : statement.parameters) {
    PF_ASSIGN_OR_RETURN(values.emplace_back(), Eval(*value));
  }
  Frame* before = frame_;
  PushFrame(before);
  for (size_t i = 0; i < values.size(); ++i) Set(statement.parameters[i].first, values[i]);
  auto flow = RunBody(statement.body);
  PopFrame(before);
  return flow;
}

absl::StatusOr<MarkedText> Evaluator::Captured(const Body& body) {
  MarkedText before = std::exchange(output_, MarkedText());
  const auto flow = RunBody(body);
  MarkedText text = std::exchange(output_, std::move(before));
  if (!flow.ok()) return flow.status();
  return text;
}

absl::StatusOr<Value> Evaluator::FilterBlockValue(const Expr& filters, MarkedText text) {
  const MarkedText* before = std::exchange(block_text_, &text);
  auto value = Eval(filters);
  block_text_ = before;
  return value;
}

absl::Status Evaluator::RunFilterBlock(const Statement& statement) {
  PF_ASSIGN_OR_RETURN(MarkedText text, Captured(statement.body));
  PF_ASSIGN_OR_RETURN(const Value value, FilterBlockValue(*statement.value, std::move(text)));
  return Print(value);
}

absl::Status Evaluator::RunSetBlock(const Statement& statement) {
  PF_ASSIGN_OR_RETURN(MarkedText text, Captured(statement.body));
  Value value(text);
  if (statement.value) {
    PF_ASSIGN_OR_RETURN(value, FilterBlockValue(*statement.value, std::move(text)));
  }
  return Assign(statement.targets[0], std::move(value));
}

absl::StatusOr<Value> Evaluator::Call(const Value& callee, const Arguments& arguments) {
  if (const Macro* macro = callee.macro()) return CallMacro(*macro, arguments);
  if (const Function* function = callee.function()) {
    PF_RETURN_IF_ERROR(ChargeRead(Value(), arguments));
    auto value = function->call(*this, arguments);
    if (value.ok() || raised_) return value;
    return AtPlace(function->name, value.status());
  }
  if (const Undefined* undefined = callee.undefined()) return Wrong(undefined->what);
  // A recursive loop.
  const Value* inner = callee.dict() ? Lookup(*callee.dict(), kLoopCall) : nullptr;
  if (inner && inner->function()) return Call(*inner, arguments);
  return Wrong(StrCat(callee.KindName(), " cannot be called"));
}

}  // namespace pagefuse::chat_template
