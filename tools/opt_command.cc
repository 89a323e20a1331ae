// pagefuse opt: rewrites a graph, and shows how.
#include <fstream>
#include <iostream>
#include <memory>

#include "absl/strings/match.h"
#include "tools/command.h"

#include "pagefuse/ir/onnx_io.h"
#include "pagefuse/ir/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/ir/text.h"

namespace pagefuse::tools {
namespace {

struct Flags {
  std::string model, output, emit, kv_cache = "none", reproducer;
  std::vector<std::string> passes, disabled, print_after, explain, options;
  int64_t block_size = 16;
  int64_t max_elements = 16;
  bool print_after_changed = false, verify = false, stats = false, timing = false,
       fuse_only = false;
  bool list_passes = false;
};

absl::StatusOr<Model> ReadModel(const std::string& path) {
  if (path != "-") return LoadModel(path);
  const std::string text((std::istreambuf_iterator<char>(std::cin)),
                         std::istreambuf_iterator<char>());
  auto parsed = ParseModel(text);
  return parsed.ok() ? std::move(parsed) : ImportModel(text, {});
}

absl::StatusOr<PipelineOptions> MakeOptions(const Flags& flags) {
  PipelineOptions options;
  options.passes = flags.passes;
  options.disabled = flags.disabled;
  options.print_after = flags.print_after;
  if (flags.print_after_changed) options.print_after.push_back("*");
  options.print_to = &std::cerr;
  options.explain = flags.explain;
  options.verify = flags.verify;
  options.page = !flags.fuse_only;
  options.reproducer_dir = flags.reproducer;
  options.options["kv_cache"] = flags.kv_cache;
  options.options["block_size"] = StrCat(flags.block_size);
  for (const std::string& option : flags.options) {
    const size_t equals = option.find('=');
    if (equals == std::string::npos) {
      return absl::InvalidArgumentError(
          StrCat("--option: expected name=value, got \"", option, "\""));
    }
    options.options[option.substr(0, equals)] = option.substr(equals + 1);
  }
  return options;
}

absl::Status Write(const Model& model, const Flags& flags) {
  const bool text = flags.emit == "text" || (flags.emit.empty() && flags.output.empty());
  if (!text && flags.emit != "onnx" && !flags.emit.empty()) {
    return absl::InvalidArgumentError(
        StrCat("--emit: expected text or onnx, got \"", flags.emit, "\""));
  }
  if (!text) {
    if (flags.output.empty()) return absl::InvalidArgumentError("--emit=onnx needs -o FILE");
    return SaveModel(model, flags.output);
  }
  const std::string printed =
      PrintModel(model, {.max_elements = flags.max_elements, .value_infos = true});
  if (flags.output.empty()) {
    std::cout << printed;
    return absl::OkStatus();
  }
  std::ofstream file(flags.output);
  file << printed;
  file.close();
  if (!file) return absl::InvalidArgumentError(StrCat("cannot write \"", flags.output, "\""));
  return absl::OkStatus();
}

void PrintReport(const PipelineReport& report, const Flags& flags) {
  if (flags.stats) {
    for (const auto& [rule, count] : report.counts) std::cerr << rule << ": " << count << "\n";
  }
  if (flags.timing) {
    double total = 0;
    for (const PassRun& run : report.runs) {
      std::fprintf(stderr, "%8.2f ms  %6lld nodes  %s%s\n", run.milliseconds,
                   static_cast<long long>(run.nodes_after), run.name.c_str(),
                   run.changed ? "" : " (unchanged)");
      total += run.milliseconds;
    }
    std::fprintf(stderr, "%8.2f ms in all\n", total);
  }
  if (flags.explain.empty()) return;
  for (const Miss& miss : report.misses) {
    std::cerr << miss.rule << " at \"" << miss.at << "\" (" << miss.matched_nodes
              << " nodes matched): " << miss.condition << "\n";
  }
}

absl::Status Opt(const Flags& flags) {
  if (flags.list_passes) {
    for (const auto& pass : DefaultPipeline()) {
      std::cout << pass->name() << ": " << pass->description() << "\n";
    }
    return absl::OkStatus();
  }
  if (flags.model.empty()) return absl::InvalidArgumentError("opt needs a model");
  PF_ASSIGN_OR_RETURN(Model model, ReadModel(flags.model));
  PF_ASSIGN_OR_RETURN(PipelineOptions options, MakeOptions(flags));
  PF_ASSIGN_OR_RETURN(PipelineReport report, RunPipeline(model, options));
  PrintReport(report, flags);
  return Write(model, flags);
}

}  // namespace

void AddOptCommand(CLI::App& app, Outcome& outcome) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand("opt", "rewrites a graph and prints or writes it");
  command->add_option("model", flags->model, "ONNX model, protobuf or text; - for standard input");
  command->add_option("-o,--output", flags->output, "file to write (ONNX unless --emit=text)");
  command->add_option("--emit", flags->emit, "text or onnx");
  command->add_option("--passes", flags->passes, "run these passes in this order")->delimiter(',');
  command->add_option("--disable-pass", flags->disabled, "passes to leave out")->delimiter(',');
  command->add_flag("--list-passes", flags->list_passes, "lists the passes in pipeline order");
  command->add_flag("--no-page", flags->fuse_only, "canonicalise, recognise and fuse only");
  command->add_option("--kv-cache", flags->kv_cache, "cache format")->capture_default_str();
  command->add_option("--block-size", flags->block_size, "tokens a cache block")
      ->capture_default_str();
  command->add_option("--option", flags->options, "a pass option, name=value");
  command->add_option("--print-after", flags->print_after, "print the graph after these passes")
      ->delimiter(',');
  command->add_flag("--print-after-changed", flags->print_after_changed,
                    "print the graph after every pass that changed it");
  command->add_option("--explain", flags->explain, "say why these rules did not fire (* for all)")
      ->delimiter(',');
  command->add_flag("--verify", flags->verify, "compare numbers before and after each pass");
  command->add_flag("--stats", flags->stats, "print how often each rule fired");
  command->add_flag("--timing", flags->timing, "print the time of each pass");
  command->add_option("--reproducer", flags->reproducer, "folder for a reproducer if a pass fails");
  command
      ->add_option("--max-elements", flags->max_elements,
                   "tensors with more elements are printed by their shape; -1 prints all")
      ->capture_default_str();
  command->callback([flags, &outcome] { outcome.status = Opt(*flags); });
}

}  // namespace pagefuse::tools
