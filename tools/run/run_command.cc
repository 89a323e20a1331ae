// pagefuse run: executes a model once.
#include <chrono>
#include <cmath>
#include <iostream>
#include <memory>

#include "tools/cli/command.h"
#include "tools/cli/model_argument.h"
#include "tools/cli/output.h"
#include "tools/run/profile.h"

#include "pagefuse/base/new_file.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/runtime/session.h"

namespace pagefuse::tools {
namespace {

struct Flags {
  ModelFlags model;
  std::string output_dir;
  std::vector<std::string> inputs;
  bool fuse = false, print_kernels = false, warm_up = false;
  int iterations = 1;
  SessionFlags session;
  ProfileFlags profiling;
};

absl::StatusOr<std::map<std::string, Tensor>> ReadFeeds(const Flags& flags) {
  std::map<std::string, Tensor> feeds;
  for (const std::string& input : flags.inputs) {
    const size_t equals = input.find('=');
    const std::string path = equals == std::string::npos ? input : input.substr(equals + 1);
    std::string name;
    PF_ASSIGN_OR_RETURN(Tensor tensor, LoadTensor(path, &name));
    if (equals != std::string::npos) name = input.substr(0, equals);
    if (name.empty())
      return absl::InvalidArgumentError(StrCat("\"", path, "\" has no name: use NAME=", path));
    feeds[name] = std::move(tensor);
  }
  return feeds;
}

std::string Summary(const Tensor& tensor) {
  if (tensor.dtype() != DataType::kFloat || tensor.size() == 0) return "";
  double low = INFINITY, high = -INFINITY, sum = 0;
  for (float value : tensor.values<float>()) {
    low = std::min<double>(low, value);
    high = std::max<double>(high, value);
    sum += value;
  }
  return StrCat(" from ", low, " to ", high, ", mean ", sum / static_cast<double>(tensor.size()));
}

// A line for each output, and a file in `folder` unless that is empty.
absl::Status WriteOutputs(const Graph& graph, const std::vector<Tensor>& outputs,
                          const std::string& folder) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string& name = graph.outputs()[i]->name();
    std::cout << name << ": " << DataTypeName(outputs[i].dtype()) << DimsToString(outputs[i].dims())
              << Summary(outputs[i]) << "\n";
    if (folder.empty()) continue;
    PF_RETURN_IF_ERROR(SaveTensor(outputs[i], name, StrCat(folder, "/output_", i, ".pb")));
  }
  return absl::OkStatus();
}

absl::Status Run(const Flags& flags) {
  PF_ASSIGN_OR_RETURN(SessionOptions options, MakeSessionOptions(flags.session));
  options.optimise = flags.fuse;
  options.pipeline.page = false;
  options.profile = flags.profiling.wanted();
  if (!flags.profiling.trace.empty()) PF_RETURN_IF_ERROR(CheckNewFile(flags.profiling.trace));
  PF_ASSIGN_OR_RETURN(Model model, ReadModel(flags.model));
  if (!flags.output_dir.empty()) PF_RETURN_IF_ERROR(MakeFolder(flags.output_dir));
  PF_ASSIGN_OR_RETURN(auto session, Session::Create(std::move(model), options));
  PrintUnfused(session->report());
  if (flags.print_kernels) std::cerr << session->KernelReport();
  auto feeds = ReadFeeds(flags);
  PF_RETURN_IF_ERROR(feeds.status());
  if (flags.warm_up) PF_RETURN_IF_ERROR(session->WarmUp(*feeds));
  std::vector<Tensor> outputs;
  ProfileLog log;
  for (int i = 0; i < flags.iterations; ++i) {
    const auto start = std::chrono::steady_clock::now();
    outputs.clear();  // their memory goes before the next run's comes
    PF_ASSIGN_OR_RETURN(outputs, session->Run(*feeds));
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    std::fprintf(stderr, "run %d: %.3f ms\n", i, time.count());
    if (options.profile) log.Add(*session, "run", start);
  }
  const SessionStats stats = session->stats();
  std::fprintf(stderr, "memory: peak %s; weights %s, packed %s, arena %s, outputs %s\n",
               HumanBytes(PeakMemoryBytes()).c_str(), HumanBytes(stats.weight_bytes).c_str(),
               HumanBytes(stats.packed_weight_bytes).c_str(), HumanBytes(stats.arena_bytes).c_str(),
               HumanBytes(stats.output_bytes).c_str());
  PF_RETURN_IF_ERROR(log.Write(flags.profiling));
  return WriteOutputs(*session->model().graph, outputs, flags.output_dir);
}

}  // namespace

void AddRunCommand(Command app, Outcome& outcome) {
  auto flags = std::make_shared<Flags>();
  Command command = app.AddCommand("run", "executes a model",
                                   [flags, &outcome] { outcome.status = Run(*flags); });
  AddModelArgument(command, flags->model);
  command.AddTexts("-i,--input", flags->inputs, "a serialised tensor, as [NAME=]FILE.pb");
  command.AddText("-o,--output-dir", flags->output_dir, "folder for output_N.pb");
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
