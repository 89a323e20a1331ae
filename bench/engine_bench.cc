// SPDX-License-Identifier: Apache-2.0
// engine_bench MODEL: what of a step is not the graph. For 1 and 32 sequences: tokens a second of steps in which all
// of them write, the shares of planning and of sampling, and the tokens a second beside what the times of the nodes
// alone would give. With --device cuda, for 1, 32 and 64 of mixed lengths: how long the device waits between steps.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"

#include "pagefuse/ops/cuda/cuda.h"
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
  std::string model, weights = "bf16", device = "cpu", kv_cache;
  int64_t context = 512, tokens = 64;
};

struct Figures {
  double tokens_per_second = 0, plan = 0, sample = 0, nodes = 0;  // shares of the steps' time
  double step_ms = 0, device = 0;
};

// Steps in which all sequences write; those with pieces of prompts count for nothing.
class Steps {
 public:
  explicit Steps(int64_t sequences) : sequences_(sequences) {}
  absl::Status Add(const EngineStep& step) {
    full_ = step.decode && step.tokens >= sequences_;
    node_seconds_ = 0;
    device_seconds_ = step.device_seconds - std::exchange(all_device_seconds_, step.device_seconds);
    if (!full_) return absl::OkStatus();
    for (const auto& node : step.session->Profile()) node_seconds_ += node.duration_us * 1e-6;
    return absl::OkStatus();
  }
  bool full() const { return full_; }
  double node_seconds() const { return node_seconds_; }
  double device_seconds() const { return device_seconds_; }

 private:
  int64_t sequences_;
  bool full_ = false;
  double node_seconds_ = 0, device_seconds_ = 0, all_device_seconds_ = 0;
};

Figures Measure(Engine& engine, Steps& steps, const Flags& flags, int64_t sequences) {
  using Clock = std::chrono::steady_clock;
  int64_t left = sequences;
  for (int64_t i = 0; i < sequences; ++i) {
    Request request;
    // Of mixed lengths: from a half to three halves.
    const int64_t length = flags.context / 2 + flags.context * i / std::max<int64_t>(sequences, 1);
    for (int64_t t = 0; t < length; ++t) {
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
  int64_t tokens = 0, count = 0;
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
    sums.device += steps.device_seconds();
    ++count;
  }
  return {.tokens_per_second = static_cast<double>(tokens) / seconds,
          .plan = sums.plan / seconds,
          .sample = sums.sample / seconds,
          .nodes = sums.nodes / seconds,
          .step_ms = 1e3 * seconds / static_cast<double>(std::max<int64_t>(count, 1)),
          .device = sums.device / seconds};
}

// Exits with the error.
template <typename T>
T Must(absl::StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  std::cerr << value.status() << "\n";
  std::exit(1);
}

Figures Run(const Flags& flags, int64_t sequences) {
  Steps steps(sequences);
  EngineOptions options;
  options.max_sequences = sequences;
  options.max_tokens_per_step = std::max<int64_t>(512, 2 * sequences);
  options.drafts = false;
  options.rereads = false;
  options.step_seconds = 3600;
  options.session.profile = flags.device == "cpu";
  if (!flags.kv_cache.empty()) options.kv_cache = flags.kv_cache;
  options.on_step = [&steps](const EngineStep& step) { return steps.Add(step); };
  pagefuse::UseWeights(Must(pagefuse::FindWeightFormat(flags.weights)), options.session);
  if (flags.device != "cpu") options.session.device = Must(pagefuse::OpenDevice(flags.device));
  const auto engine = Must(Engine::Load(flags.model, options));
  Measure(*engine, steps, flags, sequences);  // warms up
  return Measure(*engine, steps, flags, sequences);
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("What of a step is not the graph");
  app.add_option("MODEL", flags.model)->required();
  app.add_option("--weights", flags.weights);
  app.add_option("--context", flags.context);
  app.add_option("--tokens", flags.tokens);
  app.add_option("--device", flags.device);
  app.add_option("--kv-cache", flags.kv_cache);
  CLI11_PARSE(app, argc, argv);
  if (flags.device != "cpu") {
    for (const int64_t sequences : {1, 32, 64}) {
      const Figures figures = Run(flags, sequences);
      std::printf(
          "%2lld sequences: %8.1f tokens a second; %.3f ms a step, of which the device waits %.1f %%; plan %.1f %%, "
          "sampling %.1f %%\n",
          static_cast<long long>(sequences), figures.tokens_per_second, figures.step_ms,
          100 * (1 - figures.device), 100 * figures.plan, 100 * figures.sample);
    }
    return 0;
  }
  std::vector<double> rates;
  for (const int64_t sequences : {1, 32}) {
    const Figures figures = Run(flags, sequences);
    rates.push_back(figures.tokens_per_second);
    std::printf(
        "%2lld sequences: %8.1f tokens a second; plan %.2f %%, sampling %.2f %%, nodes %.2f %% of a step\n",
        static_cast<long long>(sequences), figures.tokens_per_second, 100 * figures.plan,
        100 * figures.sample, 100 * figures.nodes);
  }
  std::printf("32 beside 1: %.2f times the tokens a second\n", rates[1] / rates[0]);
  return 0;
}
