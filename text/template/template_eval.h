// SPDX-License-Identifier: Apache-2.0
// Runs chat templates: within bounds, and with nothing in reach but the values that it is given.
#pragma once

#include <array>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/text/template/template_ast.h"

namespace pagefuse::chat_template {

// The names of a template, a loop or a call of a macro.
struct Frame {
  Frame* around = nullptr;
  NamedValues names = {};
  bool kept = false;  // a macro refers to it
};

struct Macro {
  const Statement* definition;
  Frame* scope;
};

class Evaluator {
 public:
  static constexpr int kMaxDepth = 1000;  // of evaluation, and a tenth of it of calls

  explicit Evaluator(std::time_t now) : now_(now) {}

  void Set(std::string_view name, Value value) { SetNamed(frame_->names, name, std::move(value)); }
  // InvalidArgument naming the line, or with what the template raised; ResourceExhausted.
  absl::StatusOr<MarkedText> Run(const Body& body);

  // For functions, filters and tests.
  Work& work() { return work_; }
  absl::Status Charge(size_t made) { return work_.Charge(made); }
  // What each of them is given is read at least once: their texts.
  absl::Status ChargeRead(const Value& value, const Arguments& arguments);
  absl::StatusOr<Value> Text(MarkedText text);                    // charged
  absl::Status Append(MarkedText& text, const MarkedText& more);  // charged
  absl::StatusOr<Value> MakeList(List list);
  absl::StatusOr<Value> Call(const Value& callee, const Arguments& arguments);
  absl::StatusOr<Value> Attribute(const Value& object, const std::string& name);
  absl::StatusOr<Value> Item(const Value& object, const Value& key);
  // The items of a list, keys of a dict, characters of a text; none of an undefined value.
  absl::StatusOr<List> Items(const Value& value);
  absl::StatusOr<bool> Contains(const Value& container, const Value& item);
  absl::StatusOr<Value> Binary(std::string_view op, const Value& a, const Value& b);
  Namespace* NewNamespace();
  std::time_t now() const { return now_; }
  // An error that the template itself raised.
  absl::Status Raise(std::string_view message);

 private:
  enum class Flow { kNext, kBreak, kContinue };

  absl::StatusOr<Flow> RunBody(const Body& body);
  absl::StatusOr<Flow> RunStatement(const Statement& statement);
  absl::StatusOr<Flow> RunIf(const Statement& statement);
  absl::StatusOr<Flow> RunFor(const Statement& statement);
  absl::StatusOr<Flow> RunLoop(const Statement& statement, const List& items);
  absl::StatusOr<Value> LoopValue(const Statement& statement, const List& items, size_t i,
                                  const Value& changed);
  absl::StatusOr<Value> RunInnerLoop(const Statement& statement, Frame* scope,
                                     const Arguments& arguments);
  absl::StatusOr<List> FilteredItems(const Statement& statement, const Value& walked);
  absl::Status Bind(const std::vector<Target>& targets, const Value& value);
  absl::Status Unpack(const std::vector<Target>& targets, const Value& value);
  absl::Status Assign(const Target& target, Value value);
  absl::StatusOr<MarkedText> Captured(const Body& body);
  absl::Status RunFilterBlock(const Statement& statement);
  absl::Status RunCallBlock(const Statement& statement);
  absl::StatusOr<Flow> RunWith(const Statement& statement);
  absl::Status RunSetBlock(const Statement& statement);
  Value MakeMacro(const Statement& statement);
  void KeepFrames();
  absl::Status Print(const Value& value);

  absl::StatusOr<Value> Eval(const Expr& expr);
  absl::StatusOr<Value> EvalKind(const Expr& expr);
  absl::StatusOr<Value> EvalName(const std::string& name);
  absl::StatusOr<Value> EvalList(const Expr& expr);
  absl::StatusOr<Value> EvalDict(const Expr& expr);
  absl::StatusOr<Value> EvalSlice(const Expr& expr);
  absl::StatusOr<Value> EvalCall(const Expr& expr);
  absl::StatusOr<Value> EvalFilter(const Expr& expr);
  absl::StatusOr<Value> EvalTest(const Expr& expr);
  absl::StatusOr<Value> EvalUnary(const Expr& expr);
  absl::StatusOr<Value> EvalCompare(const Expr& expr);
  absl::StatusOr<Arguments> EvalArguments(const Expr& expr);
  absl::StatusOr<Value> FilterBlockValue(const Expr& filters, MarkedText text);
  absl::StatusOr<Value> CallMacro(const Macro& macro, const Arguments& arguments);
  absl::Status BindParameters(const Macro& macro, const Arguments& arguments);
  absl::Status BindOthers(const Macro& macro, const Arguments& arguments);

  Frame* PushFrame(Frame* around);
  void PopFrame(Frame* around);
  absl::Status Located(absl::Status status, int line) const;

  std::time_t now_;
  Work work_;
  int depth_ = 0, calls_ = 0;
  int64_t loop_depth_ = 1;  // of recursive loops
  bool raised_ = false;
  MarkedText output_;
  Frame root_;
  Frame* frame_ = &root_;
  const MarkedText* block_text_ = nullptr;  // what the filters of a block begin with
  std::vector<std::unique_ptr<Frame>> frames_, kept_frames_;
  std::vector<std::unique_ptr<Macro>> macros_;
  std::vector<std::unique_ptr<Namespace>> namespaces_;
};

// The member of `loop` that runs a recursive loop over other items: loop(items).
inline constexpr std::string_view kLoopCall = "()";

// Built-in functions (range, namespace, ...) by name; undefined for others.
Value FindFunction(std::string_view name);
// Methods of texts and dicts, bound to `object`; undefined for others.
Value FindMethod(const Value& object, const std::string& name);
// Unimplemented for a name that is no filter or test.
absl::StatusOr<Value> ApplyFilter(Evaluator& evaluator, const std::string& name, const Value& value,
                                  const Arguments& arguments);
bool IsFilter(std::string_view name);
absl::StatusOr<bool> ApplyTest(Evaluator& evaluator, const std::string& name, const Value& value,
                               const Arguments& arguments);

// text[start:stop:step] and list[start:stop:step]; each bound may be missing.
absl::StatusOr<Value> Slice(Evaluator& evaluator, const Value& value,
                            const std::array<std::optional<int64_t>, 3>& bounds);

}  // namespace pagefuse::chat_template
