// SPDX-License-Identifier: Apache-2.0
// A decode step of a fused file in ONNX Runtime, whose threads our kernels use, beside the same step
// here.
//
//   ort_threads fused.onnx --ort libonnxruntime.so.1 --library libpagefuse_ort.so
//     [--threads 1,2] [--repeat 200] [--rounds 5]
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "peaks.h"
#include "tools/ort/ort_host.h"
#include "tools/ort/ort_steps.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/runtime/session.h"

namespace pagefuse {
namespace {

struct Options {
  std::string model, runtime, library;
  std::vector<int> threads = {1, 2};
  int repeat = 200, rounds = 5;
};

// Microseconds of a run, the median of `repeat`.
template <typename Run>
absl::StatusOr<double> Time(int repeat, const Run& run) {
  std::vector<double> times;
  for (int i = 0; i < repeat; ++i) {
    const double start = Now();
    PF_RETURN_IF_ERROR(run());
    times.push_back((Now() - start) * 1e6);
  }
  std::nth_element(times.begin(), times.begin() + repeat / 2, times.end());
  return times[repeat / 2];
}

// One line: the fastest of the rounds, which take turns.
absl::Status Compare(const Options& options, const tools::OrtStep& step, int threads) {
  PF_ASSIGN_OR_RETURN(auto runtime, tools::OrtLibrary::Load(options.runtime));
  const tools::OrtSessionOptions ort_options{
      .custom_ops = options.library, .config = {}, .threads = threads};
  PF_ASSIGN_OR_RETURN(auto theirs, tools::OrtSession::Create(runtime, options.model, ort_options));
  PF_ASSIGN_OR_RETURN(Model model, LoadModel(options.model));
  SessionOptions own_options;
  own_options.num_threads = threads;
  PF_ASSIGN_OR_RETURN(auto ours, Session::Create(std::move(model), own_options));
  PF_ASSIGN_OR_RETURN(const tools::StepMemory memory, tools::MemoryOf(step, /*bind=*/true));
  double best_ours = INFINITY, best_theirs = INFINITY;
  for (int round = 0; round < options.rounds; ++round) {
    PF_ASSIGN_OR_RETURN(const double here,
                        Time(options.repeat, [&] { return ours->Run(memory.feeds).status(); }));
    PF_ASSIGN_OR_RETURN(
        const double there, Time(options.repeat, [&] {
          return theirs->Run(memory.feeds, step.output_names, memory.bound).status();
        }));
    best_ours = std::min(best_ours, here);
    best_theirs = std::min(best_theirs, there);
  }
  std::printf("%8d %12.1f %12.1f %8.2f\n", threads, best_ours, best_theirs,
              best_theirs / best_ours);
  return absl::OkStatus();
}

absl::Status Run(const Options& options) {
  PF_ASSIGN_OR_RETURN(Model model, LoadModel(options.model));
  PF_ASSIGN_OR_RETURN(const std::vector<tools::OrtStep> steps, tools::MakeSteps(std::move(model)));
  std::printf("%8s %12s %12s %8s\n", "threads", "pagefuse us", "in ORT us", "ratio");
  for (const int threads : options.threads) {
    PF_RETURN_IF_ERROR(Compare(options, steps.back(), threads));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace pagefuse

int main(int argc, char** argv) {
  pagefuse::Options options;
  CLI::App app{"a decode step with our kernels in ONNX Runtime and here"};
  app.add_option("model", options.model)->required();
  app.add_option("--ort", options.runtime)->required();
  app.add_option("--library", options.library)->required();
  app.add_option("--threads", options.threads)->delimiter(',')->capture_default_str();
  app.add_option("--repeat", options.repeat)->check(CLI::Range(1, 100000))->capture_default_str();
  app.add_option("--rounds", options.rounds)->check(CLI::Range(1, 1000))->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = pagefuse::Run(options);
  if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
