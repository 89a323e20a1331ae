// SPDX-License-Identifier: Apache-2.0
// pagefuse opt: rewrites a graph, and shows how.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>

#include "tools/author/pipeline_flags.h"
#include "tools/cli/command.h"
#include "tools/cli/model_argument.h"

#include "pagefuse/base/new_file.h"
#include "pagefuse/base/short_message.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/graph/absent_data.h"
#include "pagefuse/ir/graph/dot.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/passes/explain/near_misses.h"
#include "pagefuse/passes/lower/lower.h"
#include "pagefuse/runtime/rewrite_check.h"
#include "pagefuse/runtime/verdict_store.h"

namespace pagefuse::tools {
namespace {

struct Flags {
  ModelFlags model;
  std::string output, emit, reproducer, rewrite_log, check_paging = "once";
  PipelineFlags pipeline;
  std::vector<std::string> print_after, explain;
  int64_t max_elements = 16;
  bool print_after_changed = false, verify = false, stats = false, timing = false;
  bool list_passes = false;
  // Of the file that is written.
  std::optional<int64_t> target_opset;
  bool no_bodies = false, keep_float8 = false;
};

absl::StatusOr<PipelineOptions> MakeOptions(const Flags& flags) {
  PF_ASSIGN_OR_RETURN(PipelineOptions options, ReadPipelineFlags(flags.pipeline));
  options.print_after = flags.print_after;
  if (flags.print_after_changed) options.print_after.push_back("*");
  options.print_to = &std::cerr;
  options.print_max_elements = flags.max_elements;
  options.explain = flags.explain;
  options.verify = flags.verify;
  options.reproducer_dir = flags.reproducer;
  options.log_rewrites = !flags.rewrite_log.empty();
  return options;
}

// What to write: as asked for, or text to the screen and ONNX to a file.
absl::StatusOr<std::string> EmitOf(const Flags& flags) {
  if (flags.emit.empty()) return std::string(flags.output.empty() ? "text" : "onnx");
  if (flags.emit == "onnx" && flags.output.empty()) {
    return absl::InvalidArgumentError("--emit=onnx needs -o FILE");
  }
  const std::vector<std::string> known = {"text", "onnx", "dot"};
  if (std::count(known.begin(), known.end(), flags.emit) > 0) return flags.emit;
  return absl::InvalidArgumentError(
      StrCat("--emit: expected text, onnx or dot, got \"", flags.emit, "\""));
}

// Brings the model into the form that other runtimes read, and says what that took.
absl::Status PrepareFile(Model& model, const Flags& flags) {
  if (flags.no_bodies) return absl::OkStatus();
  PipelineOptions options = {.passes = ExportStage(), .explain = {"lower-opset", "write-bodies"}};
  if (flags.keep_float8) options.disabled = {"byte-caches"};
  if (flags.target_opset) options.options["target_opset"] = StrCat(*flags.target_opset);
  PF_ASSIGN_OR_RETURN(const PipelineReport report, RunPipeline(model, options));
  for (const MissedMatch& miss : report.misses) std::cerr << MissText(miss) << "\n";
  std::cerr << WrittenReport(model) << "\n";
  return absl::OkStatus();
}

absl::Status Write(Model& model, const std::string& emit, const Flags& flags) {
  if (emit == "onnx") {
    PF_RETURN_IF_ERROR(PrepareFile(model, flags));
    return SaveModel(model, flags.output);
  }
  const std::string printed =
      emit == "dot" ? PrintDot(*model.graph)
                    : PrintModel(model, {.max_elements = flags.max_elements, .value_infos = true});
  if (!flags.output.empty()) return WriteWholeFile(flags.output, printed);
  std::cout << printed;
  return absl::OkStatus();
}

void PrintTimes(const PipelineReport& report) {
  double total = 0;
  for (const PassRun& run : report.runs) {
    std::fprintf(stderr, "%8.2f ms  %6lld nodes  %s%s\n", run.milliseconds,
                 static_cast<long long>(run.nodes_after), run.name.c_str(),
                 run.changed ? "" : " (unchanged)");
    total += run.milliseconds;
  }
  std::fprintf(stderr, "%8.2f ms in all\n", total);
}

// What could not be compared by name, so that nobody takes it for equal.
void PrintVerified(const PipelineReport& report) {
  for (const std::string& line : NotComparedLines(report.log)) {
    std::cerr << "verify: " << ShortMessage(line) << "\n";
  }
  std::cerr << "verify: " << VerifySummary(report.log) << "\n";
}

void PrintReport(const PipelineReport& report, const Flags& flags) {
  if (flags.stats) {
    for (const auto& [rule, count] : report.counts) std::cerr << rule << ": " << count << "\n";
  }
  if (flags.timing) PrintTimes(report);
  if (flags.verify) PrintVerified(report);
  PrintUnfused(report);
  // The places are told by a pass, which need not be among those that ran.
  if (report.unfused.empty() && !report.why_not_paged.empty()) {
    std::cerr << "pagefuse: not paged: " << ShortMessage(report.why_not_paged) << "\n";
  }
  for (const MissedMatch& miss : report.misses) std::cerr << MissText(miss) << "\n";
  for (const std::string& line : report.unmissed) std::cerr << ShortMessage(line) << "\n";
}

// Whether the whole pipeline ran over a whole decoder, and paged it.
bool CanBeCompared(const Model& exported, const Model& model, const PipelineOptions& options) {
  return options.page && options.passes.empty() && !options.rewrite_limit &&
         HasExportedForm(exported) && !HasExportedForm(model) && CheckDataPresent(exported).ok();
}

absl::StatusOr<RewriteVerdict> FindVerdict(const Model& exported, const PipelineOptions& options,
                                           CheckPaging check) {
  EngineOptions engine;
  engine.session.pipeline = options;
  engine.session.pipeline.verify = false;
  engine.session.pipeline.log_rewrites = false;
  engine.session.pipeline.print_to = nullptr;
  engine.session.pipeline.explain.clear();
  if (check == CheckPaging::kAlways) return CheckRewrites(exported, engine);
  const VerdictStore store("", exported, engine);
  if (auto known = store.Find()) return *std::move(known);
  PF_ASSIGN_OR_RETURN(RewriteVerdict verdict, CheckRewrites(exported, engine));
  store.Keep(verdict);
  return verdict;
}

// Runs the passes, and once more without those that change the logits.
absl::StatusOr<PipelineReport> RunChecked(Model& model, PipelineOptions options,
                                          CheckPaging check) {
  const Model exported = model.Clone();
  PF_ASSIGN_OR_RETURN(PipelineReport report, RunPipeline(model, options));
  if (check == CheckPaging::kNever || !CanBeCompared(exported, model, options)) return report;
  PF_ASSIGN_OR_RETURN(const RewriteVerdict verdict, FindVerdict(exported, options, check));
  if (verdict.outcome == RewriteVerdict::Outcome::kAsExported) {
    return absl::FailedPreconditionError(StrCat("NOT EQUAL: ", verdict.reason));
  }
  if (verdict.outcome == RewriteVerdict::Outcome::kEqual) return report;
  PrintVerdict(verdict);
  if (!verdict.differs()) return report;
  EngineOptions engine;
  engine.session.pipeline = std::move(options);
  model = exported.Clone();
  return RunPipeline(model, UnderVerdict(engine, verdict).session.pipeline);
}

absl::Status Opt(const Flags& flags) {
  if (flags.list_passes) {
    for (const auto& pass : AllPasses()) {
      std::cout << pass->name() << ": " << pass->description() << "\n";
    }
    return absl::OkStatus();
  }
  if (flags.model.path.empty()) return absl::InvalidArgumentError("opt needs a model");
  PF_ASSIGN_OR_RETURN(const std::string emit, EmitOf(flags));
  PF_ASSIGN_OR_RETURN(PipelineOptions options, MakeOptions(flags));
  for (const std::string& path : {flags.output, flags.rewrite_log}) {
    if (!path.empty()) PF_RETURN_IF_ERROR(CheckNewFile(path));
  }
  PF_ASSIGN_OR_RETURN(Model model, ReadModel(flags.model, {.allow_missing_data = true}));
  if (const absl::Status present = CheckDataPresent(model); !present.ok()) {
    std::cerr << "pagefuse: note: " << ShortMessage(StdView(present.message())) << "\n";
  }
  PF_ASSIGN_OR_RETURN(const CheckPaging check, ParseCheckPaging(flags.check_paging));
  PF_ASSIGN_OR_RETURN(PipelineReport report, RunChecked(model, options, check));
  PrintReport(report, flags);
  if (!flags.rewrite_log.empty()) {
    PF_RETURN_IF_ERROR(WriteWholeFile(flags.rewrite_log, RewriteLog(report.log)));
  }
  if (!report.stopped) PF_RETURN_IF_ERROR(CheckPaged(model, flags.pipeline));
  return Write(model, emit, flags);
}

}  // namespace

void AddOptCommand(Command app, Outcome& outcome) {
  auto flags = std::make_shared<Flags>();
  Command command = app.AddCommand("opt", "rewrites a graph and prints or writes it",
                                   [flags, &outcome] { outcome.status = Opt(*flags); });
  AddModelArgument(command, flags->model).Optional();  // --list-passes needs none
  command.AddText("-o,--output", flags->output, "file to write (ONNX unless --emit=text)");
  command.AddText("--emit", flags->emit, "text, onnx or dot (a picture for Graphviz)");
  command.AddFlag("--list-passes", flags->list_passes, "lists the passes in pipeline order");
  AddPipelineFlags(command, flags->pipeline);
  AddCheckPagingFlag(command, flags->check_paging);
  command.AddText("--rewrite-log", flags->rewrite_log,
                  "file for the list of all rewrites: number, place, nodes taken and made");
  command.AddList("--print-after", flags->print_after, "print the graph after these passes");
  command.AddFlag("--print-after-changed", flags->print_after_changed,
                  "print the graph after every pass that changed it");
  command.AddList("--explain", flags->explain,
                  "say why these rules, or the rules of these passes, did not fire (* for all)");
  command.AddFlag("--verify", flags->verify,
                  "compare numbers before and after each rewrite, stop where they differ, and say "
                  "what was compared");
  command.AddFlag("--stats", flags->stats, "print how often each rule fired");
  command.AddFlag("--timing", flags->timing, "print the time of each pass");
  command.AddText("--reproducer", flags->reproducer, "folder for a reproducer if a pass fails");
  const Option no_bodies =
      command.AddFlag("--no-function-bodies", flags->no_bodies,
                      "write fused ops alone: a file for pagefuse, which no other runtime loads");
  command
      .AddNumber("--target-opset", flags->target_opset, {kOldestTarget, kNewestOpset},
                 "opset of the written file; newer ops are written as functions [21]")
      .Excludes(no_bodies);
  command
      .AddFlag("--keep-fp8", flags->keep_float8,
               "float8 caches stay float8 in the written file, not uint8")
      .Excludes(no_bodies);
  command
      .AddNumber(
          "--max-elements", flags->max_elements, {.least = -1},
          "tensors with more elements are printed by their shape, here and by --print-after; -1 "
          "prints all")
      .ShowsDefault();
}

}  // namespace pagefuse::tools
