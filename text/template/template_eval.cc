#include "pagefuse/text/template/template_eval.h"

#include <algorithm>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse::chat_template {
namespace {

absl::Status Wrong(std::string_view what) { return absl::InvalidArgumentError(AbslView(what)); }

}  // namespace

void Evaluator::Set(std::string_view name, Value value) {
  for (auto& [other, old] : frame_->names) {
    if (other == name) {
      old = std::move(value);
      return;
    }
  }
  frame_->names.emplace_back(name, std::move(value));
}

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
  return absl::Status(status.code(), StrCat("line ", line, ": ", StdView(status.message())));
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
      DefineMacro(statement);
      return Flow::kNext;
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

absl::StatusOr<List> Evaluator::FilteredItems(const Statement& statement) {
  PF_ASSIGN_OR_RETURN(const Value walked, Eval(*statement.value));
  PF_ASSIGN_OR_RETURN(List items, Items(walked));
  if (!statement.condition) return items;
  List kept;
  for (const Value& item : items) {
    Frame* before = frame_;
    PushFrame(before);
    absl::Status status = Bind(statement.targets, item);
    absl::StatusOr<Value> holds = status.ok() ? Eval(*statement.condition) : status;
    PopFrame(before);
    if (!holds.ok()) return holds.status();
    if (holds->IsTrue()) kept.push_back(item);
  }
  return kept;
}

absl::StatusOr<Evaluator::Flow> Evaluator::RunFor(const Statement& statement) {
  PF_ASSIGN_OR_RETURN(const List items, FilteredItems(statement));
  return items.empty() ? RunBody(statement.otherwise) : RunLoop(statement, items);
}

// What `loop` is in iteration `i`.
Value LoopValue(const List& items, size_t i) {
  const auto number = [](size_t n) { return Value(static_cast<int64_t>(n)); };
  const size_t count = items.size();
  Dict loop;
  const auto add = [&](const char* name, Value value) {
    loop.emplace_back(MarkedText(name), std::move(value));
  };
  add("index", number(i + 1));
  add("index0", number(i));
  add("revindex", number(count - i));
  add("revindex0", number(count - i - 1));
  add("first", Value(i == 0));
  add("last", Value(i + 1 == count));
  add("length", number(count));
  add("previtem", i > 0 ? items[i - 1] : Value(Undefined{"there is no previous item"}));
  add("nextitem", i + 1 < count ? items[i + 1] : Value(Undefined{"there is no next item"}));
  add("cycle",
      Value(Function{"cycle", [i](Evaluator&, const Arguments& arguments) -> absl::StatusOr<Value> {
                       if (arguments.positional.empty())
                         return Wrong("cycle: expected an argument");
                       return arguments.positional[i % arguments.positional.size()];
                     }}));
  return Value::Of(std::move(loop)).value_or(Value(Undefined{"loop is nested too deeply"}));
}

absl::StatusOr<Evaluator::Flow> Evaluator::RunLoop(const Statement& statement, const List& items) {
  for (size_t i = 0; i < items.size(); ++i) {
    PF_RETURN_IF_ERROR(Charge(10 * Work::kBytesAnOperation));
    Frame* before = frame_;
    PushFrame(before);
    Set("loop", LoopValue(items, i));
    absl::Status status = Bind(statement.targets, items[i]);
    absl::StatusOr<Flow> flow = status.ok() ? RunBody(statement.body) : status;
    PopFrame(before);
    if (!flow.ok()) return flow.status();
    if (*flow == Flow::kBreak) break;
  }
  return Flow::kNext;
}

absl::Status Evaluator::Assign(const Target& target, Value value) {
  if (target.attribute.empty()) {
    Set(target.name, std::move(value));
    return absl::OkStatus();
  }
  PF_ASSIGN_OR_RETURN(const Value object, EvalName(target.name));
  Namespace* space = object.name_space();
  if (space == nullptr)
    return Wrong(StrCat("\"", target.name, "\": expected a namespace, got ", object.KindName()));
  PF_RETURN_IF_ERROR(Charge(space->members.size()));
  for (auto& [name, old] : space->members) {
    if (name == target.attribute) {
      old = std::move(value);
      return absl::OkStatus();
    }
  }
  space->members.emplace_back(target.attribute, std::move(value));
  return absl::OkStatus();
}

// One target takes the value, several take its items.
absl::Status Evaluator::Bind(const std::vector<Target>& targets, const Value& value) {
  if (targets.size() == 1) return Assign(targets[0], value);
  PF_ASSIGN_OR_RETURN(const List items, Items(value));
  if (items.size() != targets.size()) {
    return Wrong(StrCat("expected ", targets.size(), " values to unpack, got ", items.size()));
  }
  for (size_t i = 0; i < items.size(); ++i) PF_RETURN_IF_ERROR(Assign(targets[i], items[i]));
  return absl::OkStatus();
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

void Evaluator::DefineMacro(const Statement& statement) {
  for (Frame* frame = frame_; frame; frame = frame->around) frame->kept = true;
  macros_.push_back(std::make_unique<Macro>(Macro{&statement, frame_}));
  Set(statement.name, Value(static_cast<const Macro*>(macros_.back().get())));
}

absl::Status Evaluator::BindParameters(const Macro& macro, const Arguments& arguments) {
  const auto& parameters = macro.definition->parameters;
  if (arguments.positional.size() > parameters.size()) {
    return Wrong(StrCat("macro \"", macro.definition->name, "\": expected ", parameters.size(),
                        " arguments at most, got ", arguments.positional.size()));
  }
  for (const auto& [name, value] : arguments.named) {
    const bool known = std::ranges::any_of(
        parameters, [&name = name](const auto& parameter) { return parameter.first == name; });
    if (!known)
      return Wrong(
          StrCat("macro \"", macro.definition->name, "\": no argument is called \"", name, "\""));
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, otherwise] = parameters[i];
    if (const Value* given = arguments.Find(i, name)) {
      Set(name, *given);
    } else if (otherwise) {
      PF_ASSIGN_OR_RETURN(Value value, Eval(*otherwise));
      Set(name, std::move(value));
    } else {
      Set(name, Value(Undefined{StrCat("parameter \"", name, "\" was not given")}));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Value> Evaluator::CallMacro(const Macro& macro, const Arguments& arguments) {
  if (calls_ >= kMaxDepth / 10) return absl::ResourceExhaustedError("calls nested too deeply");
  ++calls_;
  Frame* before = frame_;
  PushFrame(macro.scope);
  const absl::Status bound = BindParameters(macro, arguments);
  absl::StatusOr<MarkedText> text = bound.ok() ? Captured(macro.definition->body) : bound;
  PopFrame(before);
  --calls_;
  if (!text.ok()) return text.status();
  return Text(*std::move(text));
}

absl::StatusOr<Value> Evaluator::Call(const Value& callee, const Arguments& arguments) {
  if (const Macro* macro = callee.macro()) return CallMacro(*macro, arguments);
  if (const Function* function = callee.function()) {
    PF_RETURN_IF_ERROR(ChargeRead(Value(), arguments));
    auto value = function->call(*this, arguments);
    if (value.ok() || raised_) return value;
    return absl::Status(value.status().code(),
                        StrCat(function->name, ": ", StdView(value.status().message())));
  }
  if (const Undefined* undefined = callee.undefined()) return Wrong(undefined->what);
  return Wrong(StrCat(callee.KindName(), " cannot be called"));
}

}  // namespace pagefuse::chat_template
