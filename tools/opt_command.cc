// pagefuse opt: rewrites a graph, and shows how.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>

#include "tools/cache_flags.h"
#include "tools/command.h"
#include "tools/output.h"
#include "tools/weight_flags.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/absent_data.h"
#include "pagefuse/ir/dot.h"
#include "pagefuse/ir/onnx_io.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/ir/text.h"
#include "pagefuse/ops/evaluate.h"
#include "pagefuse/passes/explain/near_misses.h"
#include "pagefuse/passes/export/export.h"
#include "pagefuse/passes/page/cache_settings.h"
#include "pagefuse/passes/page/page.h"

namespace pagefuse::tools {
namespace {

struct Flags {
  std::string model, output, emit, reproducer;
  CacheFlags cache;
  WeightFlags weights;
  std::optional<int64_t> block_size;
  std::vector<std::string> passes, disabled, print_after, explain, options;
  int64_t max_elements = 16;
  bool print_after_changed = false, verify = false, stats = false, timing = false,
       fuse_only = false;
  bool list_passes = false;
  // Of the file that is written.
  std::optional<int64_t> target_opset;
  bool no_bodies = false, keep_float8 = false;
};

// A file holds the weights that its graph has.
absl::Status UseWeightFlags(const WeightFlags& flags, PipelineOptions& options) {
  PF_ASSIGN_OR_RETURN(const WeightChoice choice, ReadWeightFlags(flags, options.options));
  if (choice.packs_bfloat16) {
    return absl::InvalidArgumentError(StrCat(
        "--weights: ", choice.name,
        " is packed when a graph is loaded, no file has it: ", "give it to generate or run"));
  }
  if (choice.bits > 0) options.options["weights"] = choice.name;
  return absl::OkStatus();
}

absl::StatusOr<PipelineOptions> MakeOptions(const Flags& flags) {
  PipelineOptions options;
  options.passes = flags.passes;
  options.disabled = flags.disabled;
  options.print_after = flags.print_after;
  if (flags.print_after_changed) options.print_after.push_back("*");
  options.print_to = &std::cerr;
  options.print_max_elements = flags.max_elements;
  options.explain = flags.explain;
  options.verify = flags.verify;
  options.page = !flags.fuse_only;
  options.reproducer_dir = flags.reproducer;
  PF_RETURN_IF_ERROR(ReadCacheFlags(flags.cache, options.options));
  PF_RETURN_IF_ERROR(UseWeightFlags(flags.weights, options));
  if (flags.block_size) options.options["block_size"] = StrCat(*flags.block_size);
  PF_RETURN_IF_ERROR(ReadPassOptions(flags.options, options));
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
  for (const Miss& miss : report.misses) std::cerr << MissText(miss) << "\n";
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
  if (!flags.output.empty()) return WriteFile(flags.output, printed);
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

// A line for every pass that changed the graph, so that nobody takes what could not be compared for
// equal.
void PrintVerified(const PipelineReport& report) {
  int compared = 0, changed = 0;
  for (const PassRun& run : report.runs) {
    if (!run.changed) continue;
    const bool equal = run.verified == kVerifiedEqual;
    std::cerr << "verify: " << run.name << ": "
              << (equal ? "compared, equal" : "not compared: " + run.verified) << "\n";
    compared += equal ? 1 : 0;
    ++changed;
  }
  std::cerr << "verify: " << compared << " of " << changed
            << " passes that changed the graph were compared\n";
}

void PrintReport(const PipelineReport& report, const Flags& flags) {
  if (flags.stats) {
    for (const auto& [rule, count] : report.counts) std::cerr << rule << ": " << count << "\n";
  }
  if (flags.timing) PrintTimes(report);
  if (flags.verify) PrintVerified(report);
  PrintUnfused(report);
  // The sites are told by a pass, which need not be among those that ran.
  if (report.unfused.empty() && !report.why_not_paged.empty()) {
    std::cerr << "pagefuse: not paged: " << report.why_not_paged << "\n";
  }
  for (const Miss& miss : report.misses) std::cerr << MissText(miss) << "\n";
  for (const std::string& line : report.unmissed) std::cerr << line << "\n";
}

// Whoever asks for a cache wants one.
absl::Status CheckPaged(const Model& model, const Flags& flags) {
  const bool wants = flags.cache.format || flags.cache.index_format || flags.block_size;
  if (!wants || CacheSettingsOf(model)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat(flags.cache.format         ? "--kv-cache"
             : flags.cache.index_format ? "--indexer-cache"
                                        : "--block-size",
             ": the graph has no paged cache that it could be said of"));
}

absl::Status Opt(const Flags& flags) {
  if (flags.list_passes) {
    for (const auto& pass : AllPasses()) {
      std::cout << pass->name() << ": " << pass->description() << "\n";
    }
    return absl::OkStatus();
  }
  if (flags.model.empty()) return absl::InvalidArgumentError("opt needs a model");
  PF_ASSIGN_OR_RETURN(const std::string emit, EmitOf(flags));
  PF_ASSIGN_OR_RETURN(PipelineOptions options, MakeOptions(flags));
  PF_ASSIGN_OR_RETURN(Model model, ReadModel(flags.model, {.allow_missing_data = true}));
  if (const absl::Status present = CheckDataPresent(model); !present.ok()) {
    std::cerr << "pagefuse: note: " << present.message() << "\n";
  }
  PF_ASSIGN_OR_RETURN(PipelineReport report, RunPipeline(model, options));
  PrintReport(report, flags);
  PF_RETURN_IF_ERROR(CheckPaged(model, flags));
  return Write(model, emit, flags);
}

}  // namespace

void AddOptCommand(Command app, Outcome& outcome) {
  auto flags = std::make_shared<Flags>();
  Command command = app.AddCommand("opt", "rewrites a graph and prints or writes it",
                                   [flags, &outcome] { outcome.status = Opt(*flags); });
  command.AddText("model", flags->model, "ONNX model, protobuf or text; - for standard input");
  command.AddText("-o,--output", flags->output, "file to write (ONNX unless --emit=text)");
  command.AddText("--emit", flags->emit, "text, onnx or dot (a picture for Graphviz)");
  command.AddList("--passes", flags->passes, "run these passes in this order");
  command.AddList("--disable-pass", flags->disabled, "passes to leave out");
  command.AddFlag("--list-passes", flags->list_passes, "lists the passes in pipeline order");
  const Option no_page =
      command.AddFlag("--no-page", flags->fuse_only, "canonicalise, recognise and fuse only");
  for (Option& option : AddCacheFlags(command, flags->cache)) option.Excludes(no_page);
  AddWeightFlags(command, flags->weights);
  command
      .AddNumber("--block-size", flags->block_size, {1, kMaxBlockSize},
                 "tokens a block of the paged cache [16]")
      .Excludes(no_page);
  AddPassOptions(command, flags->options);
  command.AddList("--print-after", flags->print_after, "print the graph after these passes");
  command.AddFlag("--print-after-changed", flags->print_after_changed,
                  "print the graph after every pass that changed it");
  command.AddList("--explain", flags->explain,
                  "say why these rules, or the rules of these passes, did not fire (* for all)");
  command.AddFlag("--verify", flags->verify,
                  "compare numbers before and after each pass, and say what was compared");
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
