// SPDX-License-Identifier: Apache-2.0
// engine_bench MODEL: what of a step is not the graph. For 1 and 32 sequences: tokens a second of steps in which all
// of them write, the shares of planning and of sampling, and the tokens a second beside what the times of the nodes
// alone would give.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"

#include "pagefuse/ops/kernels/formats/weight_format.h"
#include "pagefuse/runtime/engine.h"
#include "pagefuse/runtime/runnable.h"

namespace {

using pagefuse::Engine;
using pagefuse::EngineOptions;
using pagefuse::EngineStats;
using pagefuse::EngineStep;
using pagefuse::Request;

struct Flags {
  std::string model, weights = "bf16";
  int64_t context = 512, tokens = 64;
};

struct Figures {
  double tokens_per_second = 0, plan = 0, sample = 0, nodes = 0;  // shares of the steps' time
};

// Steps in which all sequences write; those with pieces of prompts count for nothing.
class Steps {
 public:
  explicit Steps(int64_t sequences) : sequences_(sequences) {}
  absl::Status Add(const EngineStep& step) {
    full_ = step.decode && step.tokens >= sequences_;
    node_seconds_ = 0;
    if (!full_) return absl::OkStatus();
    for (const auto& node : step.session->Profile()) node_seconds_ += node.duration_us * 1e-6;
    return absl::OkStatus();
  }
  bool full() const { return full_; }
  double node_seconds() const { return node_seconds_; }

 private:
  int64_t sequences_;
  bool full_ = false;
  double node_seconds_ = 0;
};

Figures Measure(Engine& engine, Steps& steps, const Flags& flags, int64_t sequences) {
  using Clock = std::chrono::steady_clock;
  int64_t left = sequences;
  for (int64_t i = 0; i < sequences; ++i) {
    Request request;
    for (int64_t t = 0; t < flags.context; ++t) {
      request.prompt.push_back(engine.NextThatRuns(3 + (t * 7 + i * 13) % 200));
    }
    request.max_new_tokens = flags.tokens;
    const auto id =
        engine.Submit(std::move(request), {.on_done = [&left](int64_t, auto) { --left; }});
    if (!id.ok()) {
      std::cerr << id.status() << "\n";
      std::exit(1);
    }
  }
  Figures sums;
  double seconds = 0;
  int64_t tokens = 0;
  while (left > 0) {
    const EngineStats before = engine.stats();
    const auto start = Clock::now();
    const auto report = engine.Step();
    const double took = std::chrono::duration<double>(Clock::now() - start).count();
    if (!steps.full()) continue;
    const EngineStats after = engine.stats();
    seconds += took;
    tokens += report.tokens;
    sums.plan += after.plan_seconds - before.plan_seconds;
    sums.sample += after.sample_seconds - before.sample_seconds;
    sums.nodes += steps.node_seconds();
  }
  return {static_cast<double>(tokens) / seconds, sums.plan / seconds, sums.sample / seconds,
          sums.nodes / seconds};
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("What of a step is not the graph");
  app.add_option("MODEL", flags.model)->required();
  app.add_option("--weights", flags.weights);
  app.add_option("--context", flags.context);
  app.add_option("--tokens", flags.tokens);
  CLI11_PARSE(app, argc, argv);
  std::vector<double> rates;
  for (const int64_t sequences : {1, 32}) {
    Steps steps(sequences);
    EngineOptions options;
    options.max_sequences = 32;
    options.drafts = false;
    options.rereads = false;
    options.session.profile = true;
    options.on_step = [&steps](const EngineStep& step) { return steps.Add(step); };
    const auto format = pagefuse::FindWeightFormat(flags.weights);
    if (!format.ok()) {
      std::cerr << format.status() << "\n";
      return 1;
    }
    pagefuse::UseWeights(*format, options.session);
    auto engine = Engine::Load(flags.model, options);
    if (!engine.ok()) {
      std::cerr << engine.status() << "\n";
      return 1;
    }
    Measure(**engine, steps, flags, sequences);  // warms up
    const Figures figures = Measure(**engine, steps, flags, sequences);
    rates.push_back(figures.tokens_per_second);
    std::printf(
        "%2lld sequences: %8.1f tokens a second; plan %.2f %%, sampling %.2f %%, nodes %.2f %% of a step\n",
        static_cast<long long>(sequences), figures.tokens_per_second, 100 * figures.plan,
        100 * figures.sample, 100 * figures.nodes);
  }
  std::printf("32 beside 1: %.2f times the tokens a second\n", rates[1] / rates[0]);
  return 0;
}
