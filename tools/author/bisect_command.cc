// SPDX-License-Identifier: Apache-2.0
// pagefuse bisect: which rewrite first breaks a model.
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>

#include "absl/strings/str_join.h"
#include "tools/author/pipeline_flags.h"
#include "tools/author/shell_check.h"
#include "tools/cli/output.h"
#include "tools/cli/subcommand.h"

#include "pagefuse/base/new_file.h"
#include "pagefuse/base/short_message.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/passes/debug/bisect.h"
#include "pagefuse/passes/debug/reduce.h"
#include "pagefuse/plugin/loader/load_plugin.h"
#include "pagefuse/runtime/rewrite_check.h"

namespace pagefuse::tools {
namespace {

namespace fs = std::filesystem;

struct Flags {
  ModelFlags model;
  std::string output, check;
  bool all = false;
  PipelineFlags pipeline;
  SampleFlags samples;
};

// The command of --check, or the comparison of whole outputs; where paging changes the inputs, of
// the logits of sequences.
absl::StatusOr<RewriteJudge> MakeJudge(const Flags& flags, const Model& model,
                                       const PipelineOptions& options) {
  if (!flags.check.empty()) {
    PF_RETURN_IF_ERROR(CheckShellCommand(flags.check));
    return RewriteJudge(
        [command = flags.check](const Model& after, int64_t) -> absl::StatusOr<std::string> {
          PF_ASSIGN_OR_RETURN(const std::optional<std::string> wrong,
                              RunShellCheck(command, after, /*exports=*/true));
          return wrong.value_or("");
        });
  }
  PF_ASSIGN_OR_RETURN(RewriteJudge outputs, OutputJudge(model, options));
  return RewriteJudge([outputs = std::move(outputs), &model, options](
                          const Model& after, int64_t limit) -> absl::StatusOr<std::string> {
    absl::StatusOr<std::string> wrong = outputs(after, limit);
    if (!absl::IsUnimplemented(wrong.status())) return wrong;
    EngineOptions engine;
    engine.session.pipeline = options;
    engine.session.pipeline.rewrite_limit = limit;
    const absl::Status paged = CompareRewrites(model, engine).status();
    if (absl::IsInvalidArgument(paged)) return std::string("\"logits\" differ");
    return paged.ok() ? absl::StatusOr<std::string>("") : paged;
  });
}

// Whether the rule fires at all, for judges that see what comparisons do not.
ReduceCheck FiresCheck(const PipelineOptions& options, const std::string& rule) {
  return [options, rule](const ReduceCase& attempt) -> std::optional<std::string> {
    Model model = attempt.model.Clone();
    const auto report = RunPipeline(model, options);
    if (!report.ok() || !report->counts.contains(rule)) return std::nullopt;
    return rule;
  };
}

std::string OptionsLine(const PipelineOptions& options) {
  std::vector<std::string> texts;
  for (const auto& [name, value] : options.options) texts.push_back(StrCat(name, "=", value));
  return texts.empty() ? "" : StrCat("# options: ", absl::StrJoin(texts, ", "), "\n");
}

// A path as the user wrote it, links in it or not, as seen from the folder.
std::string Beside(const std::string& folder, const std::string& path) {
  return fs::absolute(path)
      .lexically_normal()
      .lexically_relative(fs::absolute(folder).lexically_normal())
      .string();
}

std::string CaseText(const Rewrite& bad, const PipelineOptions& options, const std::string& folder,
                     const Model& model) {
  std::string text = StrCat("# ", RewriteName(bad), ".\n# run: ", bad.pass, "\n");
  for (const RuleFile& file : options.rules) {
    StrAppend(&text, "# rules: ", Beside(folder, file.path), "\n");
  }
  for (const Plugin& plugin : LoadedPlugins()) {
    StrAppend(&text, "# plugin: ", Beside(folder, plugin.path), "\n");
  }
  return StrCat(text, OptionsLine(options), PrintModel(model, {.max_elements = -1}),
                "# ---- after: unchanged\n");
}

// Cuts the model down to what the rewrite needs, and writes it as a pass test.
absl::Status WriteCase(const Flags& flags, const Model& model, const PipelineOptions& options,
                       const Rewrite& bad) {
  PF_ASSIGN_OR_RETURN(const Model before, ModelBefore(model, options, bad.number));
  PipelineOptions here = options;
  here.passes = {bad.pass};
  here.disabled.clear();
  here.feeds.clear();
  here.rewrite_limit.reset();
  absl::StatusOr<Reduction> reduced = Reduce(before, VerifyCheck(here));
  if (!reduced.ok()) reduced = Reduce(before, FiresCheck(here, bad.rule));
  PF_RETURN_IF_ERROR(reduced.status());
  Model after = reduced->smallest.model.Clone();
  PF_RETURN_IF_ERROR(RunPipeline(after, here).status());
  PF_RETURN_IF_ERROR(MakeFolder(flags.output));
  const std::string path = StrCat(flags.output, "/", bad.rule, ".onnxtxt");
  PF_RETURN_IF_ERROR(
      WriteWholeFile(path, CaseText(bad, options, flags.output, reduced->smallest.model)));
  const int64_t nodes = reduced->after.nodes;
  std::cout << path << ": " << nodes << (nodes == 1 ? " node" : " nodes") << " before, "
            << after.graph->num_nodes() << " after; run: pagefuse expect " << path << "\n";
  return absl::OkStatus();
}

absl::StatusOr<int> Run(const Flags& flags) {
  using Clock = std::chrono::steady_clock;
  PF_ASSIGN_OR_RETURN(PipelineOptions options, ReadPipelineFlags(flags.pipeline));
  PF_ASSIGN_OR_RETURN(Model model, ReadModel(flags.model, {.allow_missing_data = true}));
  PF_RETURN_IF_ERROR(ReadSampleFlags(flags.samples, model, options));
  PF_ASSIGN_OR_RETURN(const RewriteJudge judge, MakeJudge(flags, model, options));
  int found = 0;
  while (true) {
    const auto start = Clock::now();
    PF_ASSIGN_OR_RETURN(const Bisection bisection, Bisect(model, options, judge));
    const std::chrono::duration<double> seconds = Clock::now() - start;
    const size_t runs = bisection.steps.size();
    std::printf("%s (%zu %s, %.1f s)\n", BisectionText(bisection).c_str(), runs,
                runs == 1 ? "run" : "runs", seconds.count());
    std::fflush(stdout);
    if (!bisection.bad) break;
    const Rewrite& bad = *bisection.bad;
    ++found;
    std::cout << "first bad " << RewriteName(bad) << "\n";
    if (!bad.detail.empty()) std::cout << ShortMessage(bad.detail) << "\n";
    if (!flags.output.empty() && bad.detail.empty()) {
      PF_RETURN_IF_ERROR(WriteCase(flags, model, options, bad));
    }
    if (!flags.all || bad.rule.empty()) break;
    options.left_out.push_back(bad.rule);
    if (bad.rule == bad.pass) options.disabled.push_back(bad.pass);
  }
  return found == 0 ? kDone : kWrongInput;
}

}  // namespace

void AddBisectCommand(Command app, Outcome& outcome) {
  auto flags = std::make_shared<Flags>();
  Command command = AddSubcommand(
      app, outcome, {"bisect", "finds the rewrite that first breaks what a model gives"}, flags,
      Run);
  AddModelArgument(command, flags->model);
  command.AddText("-o,--output", flags->output, "folder for a small pass test of what was found");
  command.AddText("--check", flags->check,
                  "command that judges the written model, whose file is {}; status 0 is good");
  command.AddFlag("--all", flags->all, "go on without the rule that was found");
  AddPipelineFlags(command, flags->pipeline);
  AddSampleFlags(command, flags->samples);
  command.Footer(
      "The number of rewrites is halved until one makes the difference. Without --check all outputs "
      "are compared with those of the model as it is, or, where paging changes its inputs, the "
      "logits of two sequences. Status 1 if a rewrite is bad.");
}

}  // namespace pagefuse::tools
