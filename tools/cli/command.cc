// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/command.h"

#include <algorithm>
#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>

#include "tools/cli/verbosity.h"

#include "pagefuse/base/progress.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/status_place.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/explain/near_misses.h"
#include "pagefuse/passes/normalise/normalise.h"

namespace pagefuse::tools {
namespace {

absl::StatusOr<Model> ReadStandardInput() {
  const std::string bytes((std::istreambuf_iterator<char>(std::cin)),
                          std::istreambuf_iterator<char>());
  absl::StatusOr<Model> model = ReadModelBytes(bytes, {});
  if (model.ok()) return model;
  return AtPlace("standard input", model.status());
}

}  // namespace

absl::StatusOr<Model> ReadModel(const std::string& path, const LoadOptions& options) {
  const ProgressStage progress(StrCat("reading ", path == "-" ? "standard input" : path));
  absl::StatusOr<Model> model = path == "-" ? ReadStandardInput() : LoadModel(path, options);
  if (!model.ok()) return model;
  RestorePluginCalls(*model);
  SettleSequences(*model);
  return model;
}

void AddSessionFlags(Command command, SessionFlags& flags) {
  command.Group("Weights and running");
  AddWeightFlags(command, flags.weights);
  AddRunFlags(command, flags);
}

void AddRunFlags(Command command, SessionFlags& flags) {
  command
      .AddNumber("--threads", flags.threads, {.most = kMaxThreads},
                 StrCat("threads, at most ", kMaxThreads, "; 0 for all cores"))
      .ShowsDefault();
  AddDeviceFlag(command, flags.device,
                "where the nodes run that it has kernels for: cpu, cuda or cuda:N");
  command.AddFlag("--no-graphs", flags.no_graphs,
                  "ask the device for each node of a step by itself, with the same results");
  command.AddSize(
      "--max-memory", flags.max_memory,
      "memory that a run may take, as 8GiB or in bytes; four fifths of what the machine "
      "or the control group has if left out");
  command.AddList("--disable-pass", flags.disabled_passes, "passes to leave out");
  command.AddList("--kernel", flags.kernels, "kernel to use for an op, as Op=name");
  AddPassOptions(command, flags.options);
  AddRuleFiles(command, flags.rules);
}

void AddRuleFiles(Command command, std::vector<std::string>& rules) {
  command.AddTexts("--rules", rules, "file of further rules (docs/authoring.md)");
}

absl::Status ReadRuleFiles(const std::vector<std::string>& paths, PipelineOptions& options) {
  for (const std::string& path : paths) {
    PF_ASSIGN_OR_RETURN(std::string text, ReadFile(path));
    options.rules.push_back({path, std::move(text)});
  }
  return absl::OkStatus();
}

void AddPassOptions(Command command, std::vector<std::string>& options) {
  command.AddTexts("--option", options, "a pass option, name=value");
}

absl::Status ReadPassOptions(const std::vector<std::string>& texts, PipelineOptions& options) {
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos) {
      return absl::InvalidArgumentError(
          StrCat("--option: expected name=value, got \"", text, "\""));
    }
    options.options[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return absl::OkStatus();
}

void PrintUnfused(const PipelineReport& report, bool attention) {
  if (ChosenVerbosity() == Verbosity::kQuiet) return;
  for (const UnfusedPlace& place : report.unfused) {
    if (!attention && place.family.starts_with("attention")) continue;
    std::cerr << "pagefuse: not fused: " << UnfusedText(place) << "\n";
  }
}

void PrintVerdict(const RewriteVerdict& verdict) {
  if (verdict.outcome == RewriteVerdict::Outcome::kEqual) return;
  std::cerr << "pagefuse: " << (verdict.differs() ? "NOT EQUAL: " : "note: ") << verdict.Text()
            << "\n";
}

void AddLoadFlags(Command command, SessionFlags& flags) {
  command.AddFlag("--read-weights", flags.read_weights,
                  "read files of weights into memory instead of mapping them: they may then change "
                  "while they are used");
}

absl::StatusOr<SessionOptions> MakeSessionOptions(const SessionFlags& flags) {
  SessionOptions options;
  PF_ASSIGN_OR_RETURN(const WeightFormat weights,
                      ReadWeightFlags(flags.weights, options.pipeline.options));
  UseWeights(weights, options);
  options.num_threads = flags.threads;
  PF_ASSIGN_OR_RETURN(options.device, ReadDeviceFlag(flags.device));
  options.device_graphs = !flags.no_graphs;
  options.map_files = !flags.read_weights;
  constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  options.max_memory_bytes = static_cast<int64_t>(std::min(flags.max_memory, kMost));
  options.pipeline.disabled = flags.disabled_passes;
  PF_RETURN_IF_ERROR(ReadPassOptions(flags.options, options.pipeline));
  PF_RETURN_IF_ERROR(ReadRuleFiles(flags.rules, options.pipeline));
  for (const std::string& choice : flags.kernels) {
    const size_t equals = choice.find('=');
    if (equals == std::string::npos) {
      return absl::InvalidArgumentError(StrCat("--kernel: expected Op=name, got \"", choice, "\""));
    }
    options.force_kernel[choice.substr(0, equals)] = choice.substr(equals + 1);
  }
  return options;
}

int64_t PeakMemoryBytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    if (word != "VmHWM:") continue;
    int64_t kib = 0;
    status >> kib;
    return kib * 1024;
  }
  return 0;
}

std::string HumanBytes(int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double size = static_cast<double>(bytes);
  int unit = 0;
  while (size >= 1024 && unit < 4) {
    size /= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof(text), unit == 0 ? "%.0f %s" : "%.1f %s", size, kUnits[unit]);
  return text;
}

std::map<std::string, int> CountOps(const Graph& graph, std::string_view domain) {
  std::map<std::string, int> counts;
  for (const auto& node : graph.nodes()) {
    if (node->domain() == domain) ++counts[node->op_type()];
  }
  return counts;
}

std::string JoinCounts(const std::map<std::string, int>& counts) {
  std::string text;
  for (const auto& [name, count] : counts) {
    StrAppend(&text, text.empty() ? "" : ", ", name, " x", count);
  }
  return text;
}

}  // namespace pagefuse::tools
