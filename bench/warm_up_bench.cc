// SPDX-License-Identifier: Apache-2.0
// What the first call of an engine costs next to later ones, with and without warm-up: time to the
// first token of a prompt, each row an engine that was loaded anew.
//
//   warm_up_bench model.onnx [--prompt-tokens 256] [--calls 4] [--engines 3] [--weights bfloat16]
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "peaks.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/formats/weight_format.h"
#include "pagefuse/runtime/engine.h"

namespace pagefuse {
namespace {

struct Options {
  std::string model;
  std::string weights = "float32";
  int64_t prompt_tokens = 256;
  int calls = 4, engines = 3;
};

// Milliseconds of loading, of warming up and of each call.
struct Times {
  double load = 0, warm_up = 0;
  std::vector<double> calls;
};

absl::StatusOr<Times> TimeEngine(const Options& options, bool warm) {
  EngineOptions engine_options;
  PF_ASSIGN_OR_RETURN(const WeightFormat weights, FindWeightFormat(options.weights));
  UseWeights(weights, engine_options.session);
  Request request;
  for (int64_t i = 0; i < options.prompt_tokens; ++i) request.prompt.push_back(2 + i % 97);
  request.max_new_tokens = 1;
  Times times;
  double start = Now();
  PF_ASSIGN_OR_RETURN(auto engine, Engine::Load(options.model, engine_options));
  times.load = (Now() - start) * 1e3;
  start = Now();
  if (warm) PF_RETURN_IF_ERROR(engine->WarmUp({request}));
  times.warm_up = (Now() - start) * 1e3;
  for (int i = 0; i < options.calls; ++i) {
    start = Now();
    PF_ASSIGN_OR_RETURN(const auto completions, engine->Generate({request}));
    PF_RETURN_IF_ERROR(FirstError(completions));
    times.calls.push_back((Now() - start) * 1e3);
  }
  return times;
}

absl::Status Run(const Options& options) {
  std::printf("%-8s %10s %10s %10s %12s %10s\n", "", "load ms", "warm ms", "first ms", "later ms",
              "first/later");
  for (int i = 0; i < options.engines; ++i) {
    for (const bool warm : {false, true}) {
      PF_ASSIGN_OR_RETURN(const Times times, TimeEngine(options, warm));
      const double later = *std::min_element(times.calls.begin() + 1, times.calls.end());
      std::printf("%-8s %10.1f %10.1f %10.2f %12.2f %10.2f\n", warm ? "warm" : "cold", times.load,
                  times.warm_up, times.calls[0], later, times.calls[0] / later);
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace pagefuse

int main(int argc, char** argv) {
  pagefuse::Options options;
  CLI::App app{"first call against later ones, with and without warm-up"};
  app.add_option("model", options.model)->required();
  app.add_option("--prompt-tokens", options.prompt_tokens)->capture_default_str();
  app.add_option("--calls", options.calls)->check(CLI::Range(2, 1000))->capture_default_str();
  app.add_option("--engines", options.engines)->capture_default_str();
  app.add_option("--weights", options.weights, pagefuse::WeightFormatNames())
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = pagefuse::Run(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return 1;
}
