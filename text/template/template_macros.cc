// SPDX-License-Identifier: Apache-2.0
// Macros of chat templates, and blocks that are handed to them.
#include <algorithm>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/text/template/template_eval.h"

namespace pagefuse::chat_template {
namespace {

constexpr std::string_view kCaller = "caller";

absl::Status Wrong(const Macro& macro, std::string_view what) {
  const std::string& name = macro.definition->name;
  return absl::InvalidArgumentError(
      StrCat("macro \"", name.empty() ? kCaller : std::string_view(name), "\": ", what));
}

bool IsParameter(const Statement& definition, std::string_view name) {
  return std::ranges::any_of(definition.parameters,
                             [&](const auto& parameter) { return parameter.first == name; });
}

}  // namespace

// What is defined here may be used where these frames have ended.
void Evaluator::KeepFrames() {
  for (Frame* frame = frame_; frame; frame = frame->around) frame->kept = true;
}

Value Evaluator::MakeMacro(const Statement& statement) {
  KeepFrames();
  macros_.push_back(std::make_unique<Macro>(Macro{&statement, frame_}));
  return Value(static_cast<const Macro*>(macros_.back().get()));
}

absl::Status Evaluator::RunCallBlock(const Statement& statement) {
  const Expr& call = *statement.value;
  PF_ASSIGN_OR_RETURN(const Value callee, Eval(*call.parts[0]));
  PF_ASSIGN_OR_RETURN(Arguments arguments, EvalArguments(call));
  arguments.named.emplace_back(kCaller, MakeMacro(statement));
  PF_ASSIGN_OR_RETURN(const Value value, Call(callee, arguments));
  return Print(value);
}

// What a call gives beyond the parameters, for a body that asks for it.
absl::Status Evaluator::BindOthers(const Macro& macro, const Arguments& arguments) {
  const Statement& definition = *macro.definition;
  const size_t count = definition.parameters.size();
  List more;
  for (size_t i = count; i < arguments.positional.size(); ++i) {
    if (!definition.takes_more) {
      return Wrong(macro, StrCat("expected ", count, " arguments at most, got ",
                                 arguments.positional.size()));
    }
    more.push_back(arguments.positional[i]);
  }
  Value caller(Undefined{"no caller is defined: the macro was called without a block"});
  Dict others;
  for (const auto& [name, value] : arguments.named) {
    if (IsParameter(definition, name)) continue;
    if (definition.takes_caller && name == kCaller) {
      caller = value;
    } else if (definition.takes_more_named) {
      others.emplace_back(MarkedText(name), value);
    } else {
      return Wrong(macro, StrCat("no argument is called \"", name, "\""));
    }
  }
  if (definition.takes_caller && !IsParameter(definition, kCaller)) Set(kCaller, caller);
  if (definition.takes_more) {
    PF_ASSIGN_OR_RETURN(Value values, Value::Tuple(std::move(more)));
    Set("varargs", std::move(values));
  }
  if (definition.takes_more_named) {
    PF_ASSIGN_OR_RETURN(Value values, Value::Of(std::move(others)));
    Set("kwargs", std::move(values));
  }
  return absl::OkStatus();
}

absl::Status Evaluator::BindParameters(const Macro& macro, const Arguments& arguments) {
  PF_RETURN_IF_ERROR(BindOthers(macro, arguments));
  const auto& parameters = macro.definition->parameters;
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

}  // namespace pagefuse::chat_template
