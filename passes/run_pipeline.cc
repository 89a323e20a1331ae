// The runner: infers, times, runs, verifies, counts, dumps and explains around each pass.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>

#include "absl/strings/str_replace.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/ir/text.h"
#include "pagefuse/ir/verify.h"
#include "pagefuse/ops/verify_ports.h"
#include "pagefuse/passes/compare_models.h"
#include "pagefuse/passes/explain/near_misses.h"
#include "pagefuse/passes/graph_edit.h"
#include "pagefuse/passes/page/cache_settings.h"
#include "pagefuse/passes/pipeline.h"
#include "pagefuse/passes/pipeline_names.h"

namespace pagefuse {
namespace {

bool Contains(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

int64_t CountNodes(Model& model) {
  int64_t count = 0;
  for (const GraphScope& scope : AllGraphs(model)) count += scope.graph->num_nodes();
  return count;
}

// In single quotes, in which a shell changes nothing.
std::string ShellWord(std::string_view text) {
  return StrCat("'", absl::StrReplaceAll(AbslView(text), {{"'", "'\\''"}}), "'");
}

class Runner {
 public:
  Runner(Model& model, const PipelineOptions& options) : model_(model), options_(options) {
    context_.options = options.options;
    context_.explain = !options.explain.empty();
  }

  absl::StatusOr<PipelineReport> Run() {
    PF_RETURN_IF_ERROR(CheckPipelineNames(options_));
    PF_RETURN_IF_ERROR(VerifyPorts(model_));
    PF_ASSIGN_OR_RETURN(const std::vector<std::unique_ptr<Pass>> passes, Passes());
    for (const auto& pass : passes) {
      if (Contains(options_.disabled, pass->name())) continue;
      PF_RETURN_IF_ERROR(RunOne(*pass));
    }
    PF_RETURN_IF_ERROR(CheckCacheOptions(model_, options_.options));
    report_.counts = context_.counts;
    report_.unfused = std::move(context_.unfused);
    CollectMisses();
    return std::move(report_);
  }

 private:
  absl::StatusOr<std::vector<std::unique_ptr<Pass>>> Passes() const {
    if (options_.passes.empty()) return options_.page ? DefaultPipeline() : FusionPipeline();
    std::vector<std::unique_ptr<Pass>> passes;
    for (const std::string& name : options_.passes) {
      PF_ASSIGN_OR_RETURN(std::unique_ptr<Pass> pass, FindPass(name));
      passes.push_back(std::move(pass));
    }
    return passes;
  }

  absl::Status RunOne(const Pass& pass) {
    const bool keeps_copy = options_.verify || !options_.reproducer_dir.empty();
    Model before;
    if (keeps_copy) before = model_.Clone();
    PassRun run{.name = std::string(pass.name())};
    absl::Status status = Attempt(pass, before, run);
    if (!status.ok()) {
      const std::string written = WriteReproducer(pass, before);
      return absl::Status(status.code(),
                          StrCat("pass \"", pass.name(), "\": ", status.message(), written));
    }
    if (run.changed || report_.runs.empty()) num_nodes_ = CountNodes(model_);
    run.nodes_after = num_nodes_;
    if (ShouldPrint(run)) {
      *options_.print_to << "# after " << run.name << "\n"
                         << PrintModel(model_, {.max_elements = options_.print_max_elements})
                         << "\n";
    }
    report_.runs.push_back(std::move(run));
    return absl::OkStatus();
  }

  absl::Status Infer() {
    context_.contents.clear();
    stale_ = false;
    return InferShapes(model_, &context_.contents);
  }

  absl::Status Attempt(const Pass& pass, const Model& before, PassRun& run) {
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    // Nothing has to be inferred again while no pass changes anything.
    if (stale_) PF_RETURN_IF_ERROR(Infer());
    PF_ASSIGN_OR_RETURN(run.changed, pass.Run(model_, context_));
    stale_ = run.changed;
    if (run.changed) context_.indices.clear();
    run.milliseconds = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    if (run.changed) PF_RETURN_IF_ERROR(Verify(model_));
    if (options_.verify && run.changed) {
      PF_RETURN_IF_ERROR(Infer());  // whether outputs are still what they were, shapes tell
      PF_ASSIGN_OR_RETURN(run.verified, CompareOnRandomInputs(before, model_));
    }
    return absl::OkStatus();
  }

  bool ShouldPrint(const PassRun& run) const {
    if (options_.print_to == nullptr) return false;
    return Contains(options_.print_after, run.name) ||
           (run.changed && Contains(options_.print_after, "*"));
  }

  // Writes the model before the pass, and the command; returns what to say of it.
  std::string WriteReproducer(const Pass& pass, const Model& before) const {
    if (options_.reproducer_dir.empty()) return "";
    std::error_code error;
    std::filesystem::create_directories(options_.reproducer_dir, error);
    const std::string base = StrCat(options_.reproducer_dir, "/", pass.name());
    std::ofstream graph(base + ".onnxtxt");
    graph << PrintModel(before);
    std::ofstream command(base + ".sh");
    // PAGEFUSE names another program than that of the path.
    command << "#!/bin/sh\nexec \"${PAGEFUSE:-pagefuse}\" opt --passes=" << pass.name()
            << (options_.verify ? " --verify" : "");
    for (const auto& [name, value] : options_.options) {
      command << " --option " << ShellWord(StrCat(name, "=", value));
    }
    command << " \"$(dirname \"$0\")\"/" << pass.name() << ".onnxtxt\n";
    graph.flush();
    command.flush();
    if (!graph || !command) return StrCat("; no reproducer could be written to ", base);
    return StrCat("; to repeat it, run sh ", base, ".sh");
  }

  // The misses that were asked for, and what there is none of.
  void CollectMisses() {
    const std::vector<PassRule> rules = ExplainedRules(options_.explain);
    std::set<std::string> names;
    for (const PassRule& rule : rules) names.insert({rule.name, rule.pass});
    std::vector<Miss> told;
    for (Miss& miss : context_.misses) {
      if (miss.rule == "insert-paged-cache") report_.why_not_paged = miss.condition;
      if (names.contains(miss.rule)) told.push_back(std::move(miss));
    }
    report_.misses = NearestMisses(std::move(told));
    std::vector<AskedRule> asked;
    for (const PassRule& rule : rules) asked.push_back(Asked(rule));
    report_.unmissed =
        UnmissedLines(asked, report_.misses, /*briefly=*/Contains(options_.explain, "*"));
  }

  AskedRule Asked(const PassRule& rule) const {
    AskedRule asked{.name = rule.name};
    for (const PassRun& run : report_.runs) {
      if (run.name != rule.pass) continue;
      asked.ran = true;
      asked.fired = asked.fired || (run.changed && rule.name == rule.pass);
    }
    const auto count = context_.counts.find(rule.name);
    if (count != context_.counts.end()) asked.times = count->second;
    asked.fired = asked.fired || asked.times > 0;
    return asked;
  }

  Model& model_;
  const PipelineOptions& options_;
  PassContext context_;
  PipelineReport report_;
  bool stale_ = true;
  int64_t num_nodes_ = 0;
};

}  // namespace

absl::StatusOr<bool> RunPass(const Pass& pass, Model& model, PassContext& context) {
  PF_RETURN_IF_ERROR(VerifyPorts(model));
  context.contents.clear();
  context.indices.clear();
  PF_RETURN_IF_ERROR(InferShapes(model, &context.contents));
  return pass.Run(model, context);
}

absl::StatusOr<PipelineReport> RunPipeline(Model& model, const PipelineOptions& options) {
  return Runner(model, options).Run();
}

}  // namespace pagefuse
