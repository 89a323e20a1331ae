// SPDX-License-Identifier: Apache-2.0
// Runs expectations of whole models.
#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/passes/debug/expectation.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/graph_snapshot.h"
#include "pagefuse/passes/edit/similar_names.h"
#include "pagefuse/passes/explain/near_misses.h"
#include "pagefuse/passes/rewrite/match_state.h"
#include "pagefuse/passes/verify/compare_models.h"
#include "pagefuse/passes/verify/missing_weights.h"

namespace pagefuse {
namespace {

// Of the op, with at least the attributes of `wanted`.
bool IsLike(const Node& node, const Node& wanted) {
  if (!node.Is(wanted.op_type(), wanted.domain())) return false;
  return std::ranges::all_of(wanted.attributes(), [&node](const auto& entry) {
    const Attribute* got = node.attribute(entry.first);
    return got != nullptr && SameAttribute(entry.second, *got);
  });
}

// `float[T, 16]` without blanks, in parts; dims alone may be `?`.
bool TypeFits(const std::string& wanted, const Value& value) {
  const auto parts = [](const std::string& type) -> std::vector<std::string> {
    return absl::StrSplit(type, absl::ByAnyChar("[], "), absl::SkipEmpty());
  };
  return std::ranges::equal(parts(wanted), parts(TypeText(value)),
                            [](const auto& x, const auto& y) { return x == "?" || x == y; });
}

class Runner {
 public:
  Runner(const Expectation& expected, const PagedComparison& compare_paged,
         const ModelReader& read_model)
      : expected_(expected), compare_paged_(compare_paged), read_model_(read_model) {}

  CaseResult Run() {
    const absl::Status status = Check();
    if (!status.ok()) Fail(StdView(status.message()));
    return std::move(result_);
  }

 private:
  void Fail(std::string_view what) { result_.failures.emplace_back(what); }

  absl::StatusOr<Model> Read() const {
    if (expected_.model.empty()) return ParseModel(absl::StrJoin(expected_.lines, "\n"));
    if (read_model_) return read_model_(expected_.model);
    return LoadModel(expected_.model, {.allow_missing_data = true});
  }

  absl::Status Check() {
    PF_ASSIGN_OR_RETURN(model_, Read());
    Model before = model_.Clone();
    PF_ASSIGN_OR_RETURN(const PipelineReport report, RunPipeline(model_, expected_.options));
    PF_RETURN_IF_ERROR(InferShapes(model_));
    for (const GraphScope& scope : AllGraphs(model_)) {
      for (const auto& node : scope.graph->nodes()) ++counts_[OpName(*node)];
    }
    for (const Expectation::Op& op : expected_.ops) CheckOp(op);
    for (const std::string& op : expected_.absent) {
      if (Count(op) > 0) FailWithPlaces(StrCat("expected no ", op, ", found ", Count(op)));
    }
    for (const Expectation::Op& op : expected_.nodes) PF_RETURN_IF_ERROR(CheckNode(op));
    for (const Expectation::Input& input : expected_.inputs) CheckInput(input);
    CheckNodes();
    if (wants_places_) {
      for (const UnfusedPlace& match : report.unfused) Fail("  " + UnfusedText(match));
    }
    result_.updated = Updated();
    if (expected_.numbers) return CheckNumbers(before);
    return absl::OkStatus();
  }

  int64_t Count(const std::string& op) const {
    const auto found = counts_.find(op);
    return found == counts_.end() ? 0 : found->second;
  }

  void FailWithPlaces(std::string_view what) {
    Fail(what);
    wants_places_ = true;
  }

  // What a count says, or the failure of it.
  void CheckCount(const Expectation::Op& op, int64_t found, std::string_view similar) {
    new_counts_[&op] = found;
    const bool fits = op.count ? *op.count == found : found > 0;
    if (fits) return;
    const std::string wanted = op.count ? StrCat(op.text, " x", *op.count) : op.text;
    FailWithPlaces(StrCat("expected ", wanted, ", found x", found, similar));
  }

  void CheckOp(const Expectation::Op& op) {
    std::vector<std::string> names;
    for (const auto& [name, count] : counts_) names.push_back(name);
    const int64_t found = Count(op.text);
    CheckCount(op, found, found > 0 ? "" : SimilarNames(op.text, names));
  }

  absl::Status CheckNode(const Expectation::Op& op) {
    auto parsed = ParseFunction(StrCat("f () => (y) { y = ", op.text, " () }"));
    if (!parsed.ok()) {
      return absl::InvalidArgumentError(StrCat(expected_.path, ": line ", op.line + 1,
                                               ": expected an op with attributes, got ", op.text));
    }
    const Node& wanted = *parsed->body->nodes().front();
    int64_t found = 0;
    for (const GraphScope& scope : AllGraphs(model_)) {
      for (const auto& node : scope.graph->nodes()) found += IsLike(*node, wanted) ? 1 : 0;
    }
    CheckCount(op, found, StrCat(" of ", Count(OpName(wanted))));
    return absl::OkStatus();
  }

  void CheckInput(const Expectation::Input& input) {
    std::vector<std::string> names;
    for (const Value* value : model_.graph->inputs()) {
      names.push_back(value->name());
      if (value->name() != input.name) continue;
      if (!TypeFits(input.type, *value)) {
        Fail(StrCat("input \"", input.name, "\": expected ", input.type, ", found ",
                    TypeText(*value)));
      }
      return;
    }
    Fail(StrCat("expected an input \"", input.name, "\", found none",
                SimilarNames(input.name, names)));
  }

  void CheckNodes() {
    num_nodes_ = model_.graph->num_nodes();
    if (num_nodes_ <= expected_.most_nodes.value_or(num_nodes_)) return;
    Fail(StrCat("expected at most ", *expected_.most_nodes, " nodes, found ", num_nodes_));
  }

  absl::Status CheckNumbers(Model& before) {
    const Expectation::Numbers& numbers = *expected_.numbers;
    const auto& outputs = before.graph->outputs();
    if (std::ranges::none_of(outputs, [&numbers](const Value* output) {
          return output->name() == numbers.output;
        })) {
      Fail(StrCat("numbers: the graph has no output \"", numbers.output, "\""));
      return absl::OkStatus();
    }
    PF_RETURN_IF_ERROR(FillMissingWeights(before));
    if (!SameInterface(InterfaceOf(*before.graph), InterfaceOf(*model_.graph))) {
      const absl::Status paged = compare_paged_(before, expected_.options, numbers.tolerance);
      if (!paged.ok()) Fail(StrCat("numbers: ", StdView(paged.message())));
      return absl::OkStatus();
    }
    Model after = before.Clone();
    PF_RETURN_IF_ERROR(RunPipeline(after, expected_.options).status());
    PF_ASSIGN_OR_RETURN(const std::string compared,
                        CompareOnRandomInputs(before, after, numbers.tolerance));
    if (compared != kVerifiedEqual) Fail(StrCat("numbers: not compared: ", compared));
    return absl::OkStatus();
  }

  // The lines of counts with what is there now.
  std::string Updated() const {
    std::vector<std::string> lines = expected_.lines;
    std::map<size_t, std::vector<std::string>> by_line;
    for (const auto* ops : {&expected_.ops, &expected_.nodes}) {
      for (const Expectation::Op& op : *ops) {
        by_line[op.line].push_back(StrCat(op.text, " x", new_counts_.at(&op)));
      }
    }
    for (const auto& [line, ops] : by_line) {
      const std::string key = lines[line].substr(0, lines[line].find(':') + 1);
      lines[line] = StrCat(key, " ", absl::StrJoin(ops, ", "));
    }
    if (num_nodes_ > expected_.most_nodes.value_or(num_nodes_)) {
      for (std::string& line : lines) {
        if (line.starts_with("# nodes:")) line = StrCat("# nodes: at most ", num_nodes_);
      }
    }
    return absl::StrJoin(lines, "\n");
  }

  const Expectation& expected_;
  const PagedComparison& compare_paged_;
  const ModelReader& read_model_;
  Model model_;
  std::map<std::string, int64_t> counts_;
  std::map<const Expectation::Op*, int64_t> new_counts_;
  int64_t num_nodes_ = 0;
  bool wants_places_ = false;
  CaseResult result_;
};

CaseResult Failed(const absl::Status& status) {
  return {.failures = {std::string(StdView(status.message()))}, .updated = {}};
}

absl::Status LoadAll(const std::vector<std::string>& plugins, const ExpectHooks& hooks) {
  for (const std::string& path : plugins) PF_RETURN_IF_ERROR(hooks.load_plugin(path));
  return absl::OkStatus();
}

}  // namespace

CaseResult RunExpectation(const Expectation& expectation, const PagedComparison& compare_paged,
                          const ModelReader& read_model) {
  return Runner(expectation, compare_paged, read_model).Run();
}

CaseResult RunExpectFile(const std::string& path, const ExpectHooks& hooks) {
  const auto text = ReadFile(path);
  if (!text.ok()) return Failed(text.status());
  if (IsPassCase(*text)) {
    const auto test = ReadPassCase(path);
    const absl::Status status = test.ok() ? LoadAll(test->plugins, hooks) : test.status();
    return status.ok() ? RunPassCase(*test) : Failed(status);
  }
  if (!IsExpectation(*text)) {
    return Failed(absl::InvalidArgumentError(
        "is no pass test (a line `# run:` and one `# ---- after`) and says nothing that it expects "
        "(`# expect:`)"));
  }
  const auto expectation = ReadExpectation(path);
  const absl::Status status =
      expectation.ok() ? LoadAll(expectation->plugins, hooks) : expectation.status();
  return status.ok() ? RunExpectation(*expectation, hooks.compare_paged, hooks.read_model)
                     : Failed(status);
}

}  // namespace pagefuse
