// SPDX-License-Identifier: Apache-2.0
// pagefuse ort: runs a file in ONNX Runtime and here, and compares.
#include <chrono>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tools/cli/command.h"
#include "tools/cli/model_argument.h"
#include "tools/cli/output.h"
#include "tools/ort/ort_comparison.h"
#include "tools/ort/ort_custom_ops.h"
#include "tools/ort/ort_host.h"
#include "tools/ort/ort_steps.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/verify/compare_models.h"
#include "pagefuse/plugin/loader/load_plugin.h"

namespace pagefuse::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kMicrosoftDomain = "com.microsoft";

struct Flags {
  ModelFlags model;
  std::string runtime, library;
  std::vector<std::string> config;
  bool no_library = false, no_bind = false, json = false;
  int threads = 1, repeat = 1;
  uint64_t cache_bytes = 0;
};

// The library that is installed or built beside the program.
absl::StatusOr<std::string> OwnLibrary() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path folder = program.parent_path();
  for (const std::filesystem::path& place : {folder, folder.parent_path() / PAGEFUSE_LIBDIR}) {
    std::filesystem::path library = place / "libpagefuse_ort.so";
    if (std::filesystem::exists(library)) return library.string();
  }
  return absl::NotFoundError(StrCat("no libpagefuse_ort.so beside ", program.string(),
                                    ": give --library=FILE, or --no-library for function bodies"));
}

// What the library's log says of nodes and caches.
struct Chosen {
  std::map<std::string, int> fused, others;  // nodes by kernel: of pagefuse and com.microsoft, else
  std::vector<std::string> copied;           // lines on caches that are copied

  void Read(const std::vector<std::string>& messages);
  int fused_nodes() const;
};

void Chosen::Read(const std::vector<std::string>& messages) {
  constexpr std::string_view kKernel = ": kernel ";
  for (const std::string& message : messages) {
    const size_t place = message.rfind(kKernel);
    if (place == std::string::npos) {
      copied.push_back(message);
      continue;
    }
    // A node of ai.onnx is called by its op alone.
    const bool is_fused = message.find('.', message.rfind('(', place)) < place;
    ++(is_fused ? fused : others)[message.substr(place + kKernel.size())];
  }
}

int Total(const std::map<std::string, int>& counts) {
  int total = 0;
  for (const auto& [name, count] : counts) total += count;
  return total;
}

int Chosen::fused_nodes() const { return Total(fused); }

std::string KernelCounts(const std::map<std::string, int>& counts) {
  return absl::StrJoin(counts, ", ", [](std::string* text, const auto& count) {
    StrAppend(text, count.first, " ", count.second);
  });
}

struct Result {
  std::string version, library;
  RegisteredOps ops;
  double registered_ms = 0;
  OrtComparison comparison;
  Chosen chosen;
  int steps = 0, fused_nodes = 0, caches = 0;
  double microseconds = INFINITY;  // of a step, the fastest
  double here = INFINITY;          // the same by our executor
};

// Nodes that the library has ops for.
int FusedNodes(const Model& model, const RegisteredOps& ops) {
  int count = 0;
  for (const auto& node : model.graph->nodes()) {
    const auto domain = ops.names.find(node->domain());
    if (domain != ops.names.end() && domain->second.count(node->op_type()) > 0) ++count;
  }
  return count;
}

absl::StatusOr<OrtSessionOptions> OptionsOf(const Flags& flags, const Model& model) {
  OrtSessionOptions options{.threads = flags.threads};
  for (const std::string& entry : flags.config) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(entry, absl::MaxSplits('=', 1));
    options.config[parts.first] = parts.second;
  }
  if (flags.no_library) return options;
  options.config.insert({"pagefuse.log", "kernels"});
  if (model.OpsetVersion(kMicrosoftDomain) > 0) {
    options.config.insert({"pagefuse.microsoft_ops", "on"});
  }
  options.custom_ops = flags.library;
  if (flags.library.empty()) {
    PF_ASSIGN_OR_RETURN(options.custom_ops, OwnLibrary());
  }
  return options;
}

// The first run is what is compared; further ones write the same once more.
absl::Status RunStep(const Flags& flags, const OrtStep& step, OrtSession& session, Result& result) {
  PF_ASSIGN_OR_RETURN(const StepMemory memory, MemoryOf(step, !flags.no_bind));
  for (int i = 0; i < flags.repeat; ++i) {
    const auto start = std::chrono::steady_clock::now();
    PF_ASSIGN_OR_RETURN(const std::vector<Tensor> outputs,
                        session.Run(memory.feeds, step.output_names, memory.bound));
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
    result.microseconds = std::min(result.microseconds, time.count());
    if (i > 0) continue;
    PF_RETURN_IF_ERROR(result.comparison.Add(step.output_names, step.expected, outputs));
  }
  return absl::OkStatus();
}

// A library that is loaded as a plug-in too has to be there twice.
absl::Status KeepApart(OrtSessionOptions& options, const TemporaryFolder& folder) {
  std::error_code error;
  for (const Plugin& plugin : LoadedPlugins()) {
    if (!std::filesystem::equivalent(plugin.path, options.custom_ops, error)) continue;
    PF_ASSIGN_OR_RETURN(options.custom_ops, CopyOfLibrary(options.custom_ops, folder));
    return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::StatusOr<Result> RunBoth(const Flags& flags) {
  const TemporaryFolder folder;
  PF_ASSIGN_OR_RETURN(std::shared_ptr<OrtLibrary> runtime, OrtLibrary::Load(flags.runtime));
  PF_ASSIGN_OR_RETURN(const ModelFolder found, FindModel(flags.model));
  PF_ASSIGN_OR_RETURN(Model model, ReadModel(found.graph));
  PF_ASSIGN_OR_RETURN(OrtSessionOptions options, OptionsOf(flags, model));
  Result result;
  result.comparison = OrtComparison(ModelTolerance(model) > kTolerance);
  PF_RETURN_IF_ERROR(KeepApart(options, folder));
  PF_ASSIGN_OR_RETURN(auto session, OrtSession::Create(runtime, found.graph, options));
  if (!options.custom_ops.empty()) {
    result.library = std::filesystem::path(options.custom_ops).filename().string();
    PF_ASSIGN_OR_RETURN(result.ops, LookAtCustomOps(options.custom_ops, options.config));
  }
  result.version = runtime->version();
  result.registered_ms = session->registered_ms();
  result.fused_nodes = FusedNodes(model, result.ops);
  PF_ASSIGN_OR_RETURN(
      const std::vector<OrtStep> steps,
      MakeSteps(std::move(model), {.cache_bytes = static_cast<int64_t>(flags.cache_bytes),
                                   .threads = flags.threads,
                                   .repeats = flags.repeat}));
  result.steps = static_cast<int>(steps.size());
  result.caches = static_cast<int>(steps[0].in_place.size());
  for (const OrtStep& step : steps) {
    PF_RETURN_IF_ERROR(RunStep(flags, step, *session, result));
    result.here = std::min(result.here, step.microseconds);
  }
  result.chosen.Read(runtime->TakeMessages());
  return result;
}

size_t OpsOf(const RegisteredOps& ops, std::string_view domain) {
  const auto found = ops.names.find(std::string(domain));
  return found == ops.names.end() ? 0 : found->second.size();
}

// Of somebody else's: its log says nothing of kernels, and there is nothing else that computes its ops.
void PrintForeignLibrary(const Result& result) {
  size_t ops = 0;
  for (const auto& [domain, names] : result.ops.names) ops += names.size();
  std::cout << result.library << ": " << ops << " ops, " << result.ops.rows
            << " rows, registered in " << std::llround(result.registered_ms) << " ms; "
            << result.fused_nodes << " nodes\n";
}

void PrintLibrary(const Result& result) {
  if (OpsOf(result.ops, "pagefuse") == 0) return PrintForeignLibrary(result);
  std::cout << result.library << ": " << OpsOf(result.ops, "pagefuse") << " pagefuse ops and "
            << OpsOf(result.ops, kMicrosoftDomain) << " of com.microsoft, " << result.ops.rows
            << " rows, registered in " << std::llround(result.registered_ms) << " ms\n";
  const int by_kernels = result.chosen.fused_nodes();
  std::cout << by_kernels << " of " << result.fused_nodes << " pagefuse nodes by kernels ("
            << KernelCounts(result.chosen.fused) << "), " << result.fused_nodes - by_kernels
            << " by bodies";
  if (!result.chosen.others.empty()) {
    std::cout << "; " << Total(result.chosen.others) << " newer nodes of ai.onnx ("
              << KernelCounts(result.chosen.others) << ")";
  }
  std::cout << "\n";
}

void Print(const Result& result, bool has_library) {
  std::cout << "ONNX Runtime " << result.version << ", ";
  if (has_library) {
    PrintLibrary(result);
  } else {
    std::cout << "function bodies\n";
  }
  const OrtComparison& c = result.comparison;
  std::cout << result.steps << " steps, " << c.outputs() << " outputs"
            << (c.equal() ? " equal" : " differ") << ": floats within " << c.largest();
  if (!c.equal() && !c.worst().empty()) std::cout << " (\"" << c.worst() << "\")";
  if (c.code_bytes() > 0) {
    std::cout << ", " << c.code_bytes() - c.different_codes() << " of " << c.code_bytes()
              << " bytes of codes identical";
  }
  std::cout << "\n";
  if (has_library && result.caches > 0) {
    const int copies = static_cast<int>(result.chosen.copied.size());
    std::cout << "caches: " << result.caches - copies << " of " << result.caches << " in place, "
              << copies << " copies\n";
    for (const std::string& line : result.chosen.copied) std::cout << "warning: " << line << "\n";
  }
  std::cout << result.microseconds << " us a step, " << result.here << " here\n";
}

void PrintJson(const Result& result, bool has_library) {
  const OrtComparison& c = result.comparison;
  Json json = {{"onnx_runtime", result.version}};
  if (has_library) {
    json["library"] = {{"name", result.library},
                       {"pagefuse_ops", OpsOf(result.ops, "pagefuse")},
                       {"microsoft_ops", OpsOf(result.ops, kMicrosoftDomain)},
                       {"rows", result.ops.rows},
                       {"registered_ms", result.registered_ms}};
    json["nodes"] = {{"pagefuse", result.fused_nodes},
                     {"by_kernels", result.chosen.fused},
                     {"by_bodies", result.fused_nodes - result.chosen.fused_nodes()},
                     {"newer_by_kernels", result.chosen.others}};
    json["caches"] = {{"all", result.caches}, {"copies", result.chosen.copied.size()}};
  }
  json["steps"] = result.steps;
  json["outputs"] = c.outputs();
  json["equal"] = c.equal();
  json["floats_within"] = c.largest();
  json["code_bytes"] = c.code_bytes();
  json["different_codes"] = c.different_codes();
  json["step_us"] = result.microseconds;
  json["step_us_here"] = result.here;
  std::cout << JsonText(json, /*indent=*/2) << "\n";
}

absl::Status Ort(const Flags& flags) {
  if (flags.runtime.empty()) {
    return absl::InvalidArgumentError(
        "ort needs --ort=LIBRARY, the path of libonnxruntime.so.1 of ONNX Runtime 1.17 or newer");
  }
  PF_ASSIGN_OR_RETURN(const Result result, RunBoth(flags));
  flags.json ? PrintJson(result, !flags.no_library) : Print(result, !flags.no_library);
  return result.comparison.Check();
}

}  // namespace

void AddOrtCommand(Command app, Outcome& outcome) {
  auto flags = std::make_shared<Flags>();
  Command command = app.AddCommand("ort", "runs a file in ONNX Runtime and here, and compares",
                                   [flags, &outcome] { outcome.status = Ort(*flags); });
  AddModelArgument(command, flags->model);
  command.AddText("--ort", flags->runtime, "libonnxruntime.so.1 of release 1.17 or newer");
  const Option library =
      command.AddText("--library", flags->library,
                      "libpagefuse_ort.so, or another library of custom ops; ours, if not given");
  command
      .AddFlag("--no-library", flags->no_library,
               "without custom ops: function bodies say what fused ops compute")
      .Excludes(library);
  command.AddTexts("--config", flags->config, "an entry of the session's configuration, key=value");
  command.AddFlag("--no-bind", flags->no_bind,
                  "caches are not bound to their outputs: each step copies them");
  command.AddNumber("--threads", flags->threads, {1, kMaxInt32}, "threads of ONNX Runtime")
      .ShowsDefault();
  command.AddNumber("--repeat", flags->repeat, {1, kMaxInt32}, "runs of each step").ShowsDefault();
  command.AddSize("--cache-bytes", flags->cache_bytes,
                  "what the caches take together; as many as the steps need, if not given");
  command.AddFlag("--json", flags->json, "machine-readable output");
}

}  // namespace pagefuse::tools
