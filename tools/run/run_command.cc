// SPDX-License-Identifier: Apache-2.0
// pagefuse run: executes a model once.
#include <chrono>
#include <cmath>
#include <iostream>
#include <memory>
#include <optional>

#include "tools/cli/command.h"
#include "tools/cli/model_argument.h"
#include "tools/cli/output.h"
#include "tools/run/numpy_file.h"
#include "tools/run/profile.h"
#include "tools/run/run_feeds.h"

#include "pagefuse/base/new_file.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ops/kernels/numeric/dispatch.h"
#include "pagefuse/passes/verify/compare_models.h"
#include "pagefuse/runtime/session.h"

namespace pagefuse::tools {
namespace {

struct Flags {
  ModelFlags model;
  std::string output;
  std::vector<std::string> inputs;
  std::optional<int64_t> random;
  bool fuse = false, print_kernels = false, warm_up = false;
  int iterations = 1;
  SessionFlags session;
  ProfileFlags profiling;
};

// How the outputs are written.
enum class OutputForm { kNone, kFolder, kNpy, kNpz };

OutputForm FormOf(const std::string& path) {
  if (path.empty()) return OutputForm::kNone;
  return path.ends_with(".npy")   ? OutputForm::kNpy
         : path.ends_with(".npz") ? OutputForm::kNpz
                                  : OutputForm::kFolder;
}

// What cannot be written is told before the work for it is done.
absl::Status CheckOutput(const std::string& path, const Graph& graph) {
  const OutputForm form = FormOf(path);
  if (form == OutputForm::kNone) return absl::OkStatus();
  if (form == OutputForm::kFolder) return MakeFolder(path);
  if (form == OutputForm::kNpy && graph.outputs().size() != 1) {
    return absl::InvalidArgumentError(StrCat("-o ", path, ": expected one output, got ",
                                             graph.outputs().size(), ": use a .npz file"));
  }
  for (const Value* output : graph.outputs()) {
    if (output->dtype() == DataType::kUndefined) continue;  // known when it has been computed
    PF_RETURN_IF_ERROR(CheckNumpyType(output->name(), output->dtype()));
  }
  return CheckNewFile(path);
}

absl::Status WriteOutputs(const Graph& graph, const std::vector<Tensor>& outputs,
                          const std::string& path) {
  const OutputForm form = FormOf(path);
  if (form == OutputForm::kNpy) {
    PF_ASSIGN_OR_RETURN(const std::string bytes, NpyBytes(outputs[0]));
    return WriteWholeFile(path, bytes);
  }
  std::vector<NamedTensor> named;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string& name = graph.outputs()[i]->name();
    if (form == OutputForm::kNpz) named.emplace_back(name, outputs[i]);
    if (form != OutputForm::kFolder) continue;
    PF_RETURN_IF_ERROR(SaveTensor(outputs[i], name, StrCat(path, "/output_", i, ".pb")));
  }
  return form == OutputForm::kNpz ? SaveNpz(named, path) : absl::OkStatus();
}

// " min -3 max 4.5 mean 0.1" over the finite elements; nothing for types that are no numbers.
std::string Summary(const Tensor& tensor) {
  double low = INFINITY, high = -INFINITY, sum = 0;
  int64_t finite = 0;
  const auto status = DispatchType(tensor.dtype(), [&]<typename T>() {
    for (const T element : tensor.values<T>()) {
      double value = 0;
      if constexpr (std::is_arithmetic_v<T>) {
        value = static_cast<double>(element);
      } else {
        value = ConvertElement<float>(element);
      }
      if (!std::isfinite(value)) continue;
      low = std::min(low, value);
      high = std::max(high, value);
      sum += value;
      ++finite;
    }
  });
  if (!status.ok() || tensor.size() == 0) return "";
  const int64_t others = tensor.size() - finite;
  return StrCat(
      finite > 0 ? StrCat(" min ", low, " max ", high, " mean ", sum / static_cast<double>(finite))
                 : std::string(),
      others > 0 ? StrCat(", ", others, " not finite") : std::string());
}

void PrintOutputs(const Graph& graph, const std::vector<Tensor>& outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    std::cout << graph.outputs()[i]->name() << ": " << DataTypeName(outputs[i].dtype())
              << DimsToString(outputs[i].dims()) << Summary(outputs[i]) << "\n";
  }
}

using Feeds = std::map<std::string, Tensor>;

// Of made-up sizes not all go together: the first that the graph runs with.
absl::StatusOr<Feeds> FeedsThatRun(const Flags& flags, const RunFeeds& feeds, Session& session) {
  const std::optional<int> seed =
      flags.random ? std::optional<int>(static_cast<int>(*flags.random)) : std::nullopt;
  PF_ASSIGN_OR_RETURN(Feeds first, feeds.Make(seed, 0));
  if (!seed) return first;
  const absl::Status status = session.Run(first).status();
  for (int attempt = 1; attempt < kFeedAttempts && !status.ok(); ++attempt) {
    PF_ASSIGN_OR_RETURN(Feeds other, feeds.Make(seed, attempt));
    if (session.Run(other).ok()) return other;
  }
  PF_RETURN_IF_ERROR(status);
  return first;
}

absl::StatusOr<std::vector<Tensor>> RunTimed(const Flags& flags, const Feeds& feeds,
                                             Session& session, ProfileLog& log) {
  std::vector<Tensor> outputs;
  for (int i = 0; i < flags.iterations; ++i) {
    const auto start = std::chrono::steady_clock::now();
    outputs.clear();  // their memory goes before the next run's comes
    PF_ASSIGN_OR_RETURN(outputs, session.Run(feeds));
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    std::fprintf(stderr, "run %d: %.3f ms\n", i, time.count());
    if (flags.profiling.wanted()) log.Add(session, "run", start);
  }
  return outputs;
}

void PrintMemory(const SessionStats& stats) {
  std::fprintf(stderr, "memory: peak %s; weights %s, packed %s, arena %s, outputs %s\n",
               HumanBytes(PeakMemoryBytes()).c_str(), HumanBytes(stats.weight_bytes).c_str(),
               HumanBytes(stats.packed_weight_bytes).c_str(), HumanBytes(stats.arena_bytes).c_str(),
               HumanBytes(stats.output_bytes).c_str());
}

absl::Status Run(const Flags& flags) {
  PF_ASSIGN_OR_RETURN(SessionOptions options, MakeSessionOptions(flags.session));
  options.optimise = flags.fuse;
  options.pipeline.page = false;
  options.profile = flags.profiling.wanted();
  if (!flags.profiling.trace.empty()) PF_RETURN_IF_ERROR(CheckNewFile(flags.profiling.trace));
  PF_ASSIGN_OR_RETURN(Model model, ReadModel(flags.model));
  PF_ASSIGN_OR_RETURN(const RunFeeds given, RunFeeds::Read(flags.inputs, model));
  PF_RETURN_IF_ERROR(CheckOutput(flags.output, *model.graph));
  PF_ASSIGN_OR_RETURN(auto session, Session::Create(std::move(model), options));
  PrintUnfused(session->report());
  if (flags.print_kernels) std::cerr << session->KernelReport();
  PF_ASSIGN_OR_RETURN(const Feeds feeds, FeedsThatRun(flags, given, *session));
  if (flags.warm_up) PF_RETURN_IF_ERROR(session->WarmUp(feeds));
  ProfileLog log;
  PF_ASSIGN_OR_RETURN(const std::vector<Tensor> outputs, RunTimed(flags, feeds, *session, log));
  PrintMemory(session->stats());
  PF_RETURN_IF_ERROR(log.Write(flags.profiling));
  const Graph& graph = *session->model().graph;
  PrintOutputs(graph, outputs);
  return WriteOutputs(graph, outputs, flags.output);
}

}  // namespace

void AddRunCommand(Command app, Outcome& outcome) {
  auto flags = std::make_shared<Flags>();
  Command command = app.AddCommand("run", "executes a model",
                                   [flags, &outcome] { outcome.status = Run(*flags); });
  AddModelArgument(command, flags->model);
  command.AddTexts(
      "-i,--input", flags->inputs,
      "an input: [NAME=]FILE with a .pb, .npy or .npz, or NAME=VALUE with a number, which fills it, or "
      "lists as [[1,2],[3,4]]");
  command.AddNumber("--random", flags->random, {0, kMaxInt32},
                    "a seed: inputs that are not given are made up with it");
  command.AddText("-o,--output,--output-dir", flags->output,
                  "FILE.npy for one output, FILE.npz for all, or a folder for output_N.pb");
  command.AddFlag("--fuse", flags->fuse, "run the passes that keep inputs and outputs first");
  command.AddNumber("--iterations", flags->iterations, {1, kMaxInt32}, "runs").ShowsDefault();
  command.AddFlag("--warm-up", flags->warm_up,
                  "prime memory and tables first, so that the first run costs what later ones do");
  command.AddFlag("--print-kernels", flags->print_kernels,
                  "node, kernel, and why better ones were refused");
  AddProfileFlags(command, flags->profiling);
  AddSessionFlags(command, flags->session);
  AddLoadFlags(command, flags->session);
}

}  // namespace pagefuse::tools
