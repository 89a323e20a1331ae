// SPDX-License-Identifier: Apache-2.0
// The runner: infers, times, runs, verifies, counts, dumps and explains around each pass.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <new>
#include <optional>
#include <set>
#include <stdexcept>

#include "absl/algorithm/container.h"
#include "absl/strings/str_replace.h"

#include "pagefuse/base/new_file.h"
#include "pagefuse/base/progress.h"
#include "pagefuse/base/short_message.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/graph/verify.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/ops/cache/cache_settings.h"
#include "pagefuse/ops/infer/verify_ports.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/explain/near_misses.h"
#include "pagefuse/passes/paging/cache_branch.h"
#include "pagefuse/passes/pipeline/pipeline.h"
#include "pagefuse/passes/pipeline/pipeline_names.h"
#include "pagefuse/passes/pipeline/placed_rules.h"
#include "pagefuse/passes/verify/compare_models.h"
#include "pagefuse/passes/verify/rewrite_watch.h"

namespace pagefuse {
namespace {

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
    context_.side_by_side = options.side_by_side;
    context_.left_out.insert(options.left_out.begin(), options.left_out.end());
    context_.after_rewrite = [this](const Model&, std::string_view rule) {
      return CountRewrite(rule);
    };
  }

  absl::StatusOr<PipelineReport> Run() {
    PF_ASSIGN_OR_RETURN(rules_, ReadRuleFiles(options_.rules));
    PF_RETURN_IF_ERROR(CheckPipelineNames(options_, rules_));
    PF_RETURN_IF_ERROR(VerifyPorts(model_));
    PF_ASSIGN_OR_RETURN(const std::vector<std::unique_ptr<Pass>> passes, Passes());
    PF_RETURN_IF_ERROR(StartWatch());
    ProgressStage progress("passes", static_cast<int64_t>(passes.size()));
    int64_t done = 0;
    for (const auto& pass : passes) {
      progress.Reach(done++);
      if (absl::c_linear_search(options_.disabled, pass->name())) continue;
      if (report_.rewrites >= options_.rewrite_limit.value_or(kNoLimit)) report_.stopped = true;
      if (report_.stopped) break;
      PF_RETURN_IF_ERROR(RunOne(*pass));
    }
    // A graph that is not done yet need not have the cache that was asked for.
    if (!report_.stopped) PF_RETURN_IF_ERROR(CheckCacheOptions(model_, options_.options));
    report_.counts = context_.counts;
    report_.unfused = std::move(context_.unfused);
    CollectMisses();
    return std::move(report_);
  }

 private:
  absl::StatusOr<std::vector<std::unique_ptr<Pass>>> Passes() const {
    std::vector<std::unique_ptr<Pass>> passes;
    if (options_.passes.empty()) {
      passes = options_.page ? DecoderPipeline() : FragmentPipeline();
      PlaceRules(rules_, passes);
      return passes;
    }
    bool has_rules = false;
    std::vector<std::unique_ptr<Pass>> all = AllPasses();
    for (const std::string& name : options_.passes) {
      std::vector<std::unique_ptr<Pass>> of_rules = RulePasses(rules_, name);
      has_rules = has_rules || !of_rules.empty();
      if (of_rules.empty()) {
        PF_ASSIGN_OR_RETURN(of_rules.emplace_back(), Take(name, all));
      }
      for (std::unique_ptr<Pass>& pass : of_rules) passes.push_back(std::move(pass));
    }
    if (has_rules) return passes;
    std::vector<PlacedPass> of_files = rules_;
    std::erase_if(of_files, [](const PlacedPass& placed) { return !placed.plugin.empty(); });
    PlaceRules(of_files, passes);
    return passes;
  }

  // One of that name out of `all`, which is made once for all names. Where it has no more of them, another.
  static absl::StatusOr<std::unique_ptr<Pass>> Take(std::string_view name,
                                                    std::vector<std::unique_ptr<Pass>>& all) {
    for (std::unique_ptr<Pass>& pass : all) {
      if (pass != nullptr && pass->name() == name) return std::move(pass);
    }
    return FindPass(name);
  }

  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

  absl::Status StartWatch() {
    if (!options_.verify && !options_.log_rewrites) return absl::OkStatus();
    PF_RETURN_IF_ERROR(Infer());
    watch_.emplace(model_, WatchOptions{.verify = options_.verify,
                                        .samples = options_.samples,
                                        .feeds = options_.feeds});
    return absl::OkStatus();
  }

  // Numbers a rewrite and looks at it. An error ends the pass: a difference, or Cancelled where no
  // more rewrites were asked for.
  absl::Status CountRewrite(std::string_view rule) {
    ++report_.rewrites;
    if (watch_) {
      report_.log.push_back(watch_->After(model_, pass_, rule));
      const Rewrite& rewrite = report_.log.back();
      if (rewrite.numbers == Rewrite::Numbers::kDiffer && !options_.keep_going) {
        return absl::InvalidArgumentError(StrCat(RewriteName(rewrite), ": ", rewrite.detail));
      }
    }
    if (report_.rewrites < options_.rewrite_limit.value_or(kNoLimit)) return absl::OkStatus();
    report_.stopped = true;
    return absl::CancelledError("no more rewrites were asked for");
  }

  absl::Status RunOne(const Pass& pass) {
    Model before;
    if (!options_.reproducer_dir.empty()) before = model_.Clone();
    pass_ = pass.name();
    PassRun run{.name = std::string(pass.name())};
    absl::Status status = absl::ResourceExhaustedError("no memory for what it works with");
    try {
      status = Attempt(pass, run);
    } catch (const std::bad_alloc&) {
    } catch (const std::length_error&) {
    }
    if (!status.ok()) {
      const std::string written = WriteReproducer(pass, before);
      return absl::Status(
          status.code(),
          StrCat("pass \"", pass.name(), "\": ", ShortMessage(StdView(status.message())), written));
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

  absl::Status Attempt(const Pass& pass, PassRun& run) {
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    const int64_t rewrites = report_.rewrites;
    // Nothing has to be inferred again while no pass changes anything.
    if (stale_) PF_RETURN_IF_ERROR(Infer());
    const absl::StatusOr<bool> changed = pass.Run(model_, context_);
    if (!report_.stopped) PF_RETURN_IF_ERROR(changed.status());
    run.changed = !changed.ok() || *changed;
    stale_ = run.changed;
    if (run.changed) context_.indices.clear();
    if (run.changed) PF_RETURN_IF_ERROR(Verify(model_));
    // A pass that counts nothing is one rewrite.
    if (run.changed && report_.rewrites == rewrites) PF_RETURN_IF_ERROR(CountWholePass(pass));
    run.milliseconds = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    if (options_.verify && run.changed) run.verified = VerdictOf(rewrites);
    return absl::OkStatus();
  }

  absl::Status CountWholePass(const Pass& pass) {
    if (watch_) PF_RETURN_IF_ERROR(Infer());  // what inputs and outputs are now, shapes tell
    const absl::Status status = CountRewrite(pass.name());
    return report_.stopped ? absl::OkStatus() : status;
  }

  // Of the rewrites behind the first so many.
  std::string VerdictOf(int64_t first) const {
    for (auto it = report_.log.begin() + first; it != report_.log.end(); ++it) {
      if (it->numbers != Rewrite::Numbers::kEqual) return it->detail;
    }
    return std::string(kVerifiedEqual);
  }

  bool ShouldPrint(const PassRun& run) const {
    if (options_.print_to == nullptr) return false;
    return absl::c_linear_search(options_.print_after, run.name) ||
           (run.changed && absl::c_linear_search(options_.print_after, "*"));
  }

  // Writes the model before the pass, and the command; returns what to say of it.
  std::string WriteReproducer(const Pass& pass, const Model& before) const {
    if (options_.reproducer_dir.empty()) return "";
    std::error_code error;
    std::filesystem::create_directories(options_.reproducer_dir, error);
    const std::string base = StrCat(options_.reproducer_dir, "/", pass.name());
    // PAGEFUSE names another program than that of the path.
    std::string command =
        StrCat("#!/bin/sh\nexec \"${PAGEFUSE:-pagefuse}\" opt --passes=", pass.name(),
               options_.verify ? " --verify" : "");
    for (const RuleFile& file : options_.rules) {
      StrAppend(&command, " --rules ", ShellWord(file.path));
    }
    std::set<std::string> plugins;
    for (const PlacedPass& placed : rules_) plugins.insert(placed.plugin);
    for (const std::string& path : plugins) {
      if (!path.empty()) StrAppend(&command, " --plugin ", ShellWord(path));
    }
    for (const auto& [name, value] : options_.options) {
      StrAppend(&command, " --option ", ShellWord(StrCat(name, "=", value)));
    }
    StrAppend(&command, " \"$(dirname \"$0\")\"/", pass.name(), ".onnxtxt\n");
    if (!WriteWholeFile(base + ".onnxtxt", PrintModel(before)).ok() ||
        !WriteWholeFile(base + ".sh", command).ok()) {
      return StrCat("; no reproducer could be written to ", base);
    }
    return StrCat("; to repeat it, run sh ", base, ".sh");
  }

  // The misses that were asked for, and what there is none of.
  void CollectMisses() {
    const std::vector<PassRule> rules = ExplainedRules(options_.explain, rules_);
    std::set<std::string> names;
    for (const PassRule& rule : rules) names.insert({rule.name, rule.pass});
    std::vector<MissedMatch> told;
    for (MissedMatch& miss : context_.misses) {
      if (miss.rule == "insert-paged-cache") report_.why_not_paged = miss.condition;
      if (names.contains(miss.rule)) told.push_back(std::move(miss));
    }
    report_.misses = NearestMisses(std::move(told));
    std::vector<AskedRule> asked;
    for (const PassRule& rule : rules) asked.push_back(Asked(rule));
    report_.unmissed = UnmissedLines(asked, report_.misses,
                                     /*briefly=*/absl::c_linear_search(options_.explain, "*"));
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
  std::vector<PlacedPass> rules_;
  std::optional<RewriteWatch> watch_;
  std::string pass_;  // that runs
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
  const bool chooses = std::ranges::any_of(
      model.graph->inputs(), [](const Value* input) { return IsCacheBranch(*input); });
  if (!chooses || !options.page || !options.passes.empty()) return Runner(model, options).Run();
  // Without pages the graph keeps its choice.
  Model cached = model.Clone();
  TakeCacheBranch(cached);
  PF_ASSIGN_OR_RETURN(PipelineReport report, Runner(cached, options).Run());
  if (report.stopped || report.counts.contains("insert-paged-cache")) {
    model = std::move(cached);
    return report;
  }
  PF_ASSIGN_OR_RETURN(PipelineReport plain, Runner(model, options).Run());
  plain.why_not_paged = report.why_not_paged;
  return plain;
}

PipelineReport::PipelineReport() = default;
PipelineReport::PipelineReport(const PipelineReport&) = default;
PipelineReport::PipelineReport(PipelineReport&&) noexcept = default;
PipelineReport& PipelineReport::operator=(const PipelineReport&) = default;
PipelineReport& PipelineReport::operator=(PipelineReport&&) noexcept = default;
PipelineReport::~PipelineReport() = default;

}  // namespace pagefuse
