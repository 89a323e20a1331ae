// SPDX-License-Identifier: Apache-2.0
// Loops of chat templates, and what `loop` is within them.

#include "pagefuse/base/status_macros.h"
#include "pagefuse/text/template/template_eval.h"

namespace pagefuse::chat_template {
namespace {

Value Number(int64_t number) { return Value(number); }

// loop.cycle(a, b): one of the arguments by the iteration.
Value Cycle(size_t i) {
  return Value(
      Function{"cycle", [i](Evaluator&, const Arguments& arguments) -> absl::StatusOr<Value> {
                 if (arguments.positional.empty()) return Wrong("expected an argument");
                 return arguments.positional[i % arguments.positional.size()];
               }});
}

// loop.changed(a, b): whether they are others than in the last call of the loop.
Value Changed() {
  auto last = std::make_shared<std::optional<Value>>();
  return Value(Function{
      "changed", [last](Evaluator& evaluator, const Arguments& arguments) -> absl::StatusOr<Value> {
        PF_ASSIGN_OR_RETURN(Value values, evaluator.MakeList(arguments.positional));
        bool same = false;
        if (*last) {
          PF_ASSIGN_OR_RETURN(same, Equal(evaluator.work(), **last, values));
        }
        *last = std::move(values);
        return Value(!same);
      }});
}

}  // namespace

absl::StatusOr<List> Evaluator::FilteredItems(const Statement& statement, const Value& walked) {
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
  PF_ASSIGN_OR_RETURN(const Value walked, Eval(*statement.value));
  PF_ASSIGN_OR_RETURN(const List items, FilteredItems(statement, walked));
  if (statement.recursive) KeepFrames();
  return items.empty() ? RunBody(statement.otherwise) : RunLoop(statement, items);
}

// loop(items) in a recursive loop: what the loop prints of these items.
absl::StatusOr<Value> Evaluator::RunInnerLoop(const Statement& statement, Frame* scope,
                                              const Arguments& arguments) {
  PF_RETURN_IF_ERROR(arguments.Check(1));
  if (arguments.positional.empty()) return Wrong("expected items");
  if (calls_ >= kMaxDepth / 10) return absl::ResourceExhaustedError("calls nested too deeply");
  Frame* before = std::exchange(frame_, scope);
  MarkedText around = std::exchange(output_, MarkedText());
  ++calls_;
  ++loop_depth_;
  absl::StatusOr<Flow> flow = Flow::kNext;
  const auto items = FilteredItems(statement, arguments.positional[0]);
  if (items.ok()) {
    flow = items->empty() ? RunBody(statement.otherwise) : RunLoop(statement, *items);
  }
  --loop_depth_;
  --calls_;
  MarkedText text = std::exchange(output_, std::move(around));
  frame_ = before;
  PF_RETURN_IF_ERROR(items.status());
  PF_RETURN_IF_ERROR(flow.status());
  return Text(std::move(text));
}

// What `loop` is in iteration `i`.
absl::StatusOr<Value> Evaluator::LoopValue(const Statement& statement, const List& items, size_t i,
                                           const Value& changed) {
  const auto place = static_cast<int64_t>(i), count = static_cast<int64_t>(items.size());
  Dict loop;
  const auto add = [&](std::string_view name, Value value) {
    loop.emplace_back(MarkedText(std::string(name)), std::move(value));
  };
  add("index", Number(place + 1));
  add("index0", Number(place));
  add("revindex", Number(count - place));
  add("revindex0", Number(count - place - 1));
  add("first", Value(i == 0));
  add("last", Value(place + 1 == count));
  add("length", Number(count));
  add("depth", Number(loop_depth_));
  add("depth0", Number(loop_depth_ - 1));
  add("previtem", i > 0 ? items[i - 1] : Value(Undefined{"there is no previous item"}));
  add("nextitem", i + 1 < items.size() ? items[i + 1] : Value(Undefined{"there is no next item"}));
  add("cycle", Cycle(i));
  add("changed", changed);
  if (statement.recursive) {
    add(kLoopCall, Value(Function{"loop", [&statement, scope = frame_->around](
                                              Evaluator& evaluator, const Arguments& arguments) {
                                    return evaluator.RunInnerLoop(statement, scope, arguments);
                                  }}));
  }
  return Value::Of(std::move(loop));
}

absl::StatusOr<Evaluator::Flow> Evaluator::RunLoop(const Statement& statement, const List& items) {
  const Value changed = Changed();
  for (size_t i = 0; i < items.size(); ++i) {
    PF_RETURN_IF_ERROR(Charge(10 * Work::kBytesAnOperation));
    Frame* before = frame_;
    PushFrame(before);
    const auto loop = LoopValue(statement, items, i, changed);
    if (loop.ok()) Set("loop", *loop);
    absl::Status status = loop.ok() ? Bind(statement.targets, items[i]) : loop.status();
    absl::StatusOr<Flow> flow = status.ok() ? RunBody(statement.body) : status;
    PopFrame(before);
    if (!flow.ok()) return flow.status();
    if (*flow == Flow::kBreak) break;
  }
  return Flow::kNext;
}

}  // namespace pagefuse::chat_template
