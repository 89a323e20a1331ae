// SPDX-License-Identifier: Apache-2.0
// An engine under load for long: requests of all kinds come, are cancelled, and steps fail, in a cache
// for one and a half of the longest. What is not ended by that answers as alone, and nothing is left.
#include <cstdio>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "must.h"
#include "tiny_decoder.h"
#include <CLI/CLI.hpp>

#include "pagefuse/runtime/engine.h"

namespace pagefuse {
namespace {

constexpr int64_t kKinds = 60, kLongest = 120;

// Prompts that begin alike in part, read greedily or drawn, with one answer or several.
std::vector<Request> Kinds(std::mt19937& random) {
  std::vector<Request> kinds(kKinds);
  for (int64_t i = 0; i < kKinds; ++i) {
    const auto length = static_cast<int64_t>(1 + random() % (kLongest - 40));
    for (int64_t t = 0; t < length; ++t) {
      kinds[i].prompt.push_back((t < 8 * (i % 5) ? 3 * t : 5 * t * (i + 1) + i) % kTinyVocabulary);
    }
    kinds[i].max_new_tokens = 1 + static_cast<int64_t>(random() % 40);
    kinds[i].samples = i % 4 == 0 ? 1 + i % 5 : 1;
    kinds[i].sampling.seed = i;
    if (i % 2 == 1) kinds[i].sampling.temperature = 1.5f;
    if (i % 6 == 1) kinds[i].sampling.top_k = 5;
    if (i % 6 == 3) kinds[i].sampling.repetition_penalty = 1.2f;
  }
  return kinds;
}

int64_t ResidentKib() {
  std::ifstream file("/proc/self/statm");
  int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * 4;
}

class Soak {
 public:
  Soak(int64_t requests, uint32_t seed) : requests_(requests), random_(seed) {}

  int Run() {
    const std::vector<Request> kinds = Kinds(random_);
    const auto alone = Must(Engine::Create(TinyDecoder(8), {.block_size = 4}));
    for (const Request& kind : kinds) expected_.push_back(Must(alone->Generate({kind})));
    EngineOptions options{.block_size = 4,
                          .max_tokens_per_step = 64,
                          .max_sequences = 16,
                          .cache_tokens = kLongest * 3 / 2};
    options.on_step = [this](const EngineStep&) {
      return random_() % 20 == 0 ? absl::UnavailableError("a step that fails") : absl::OkStatus();
    };
    engine_ = Must(Engine::Create(TinyDecoder(8), options));
    int64_t early = 0;
    for (int64_t i = 0; i < requests_; ++i) {
      Submit(kinds, static_cast<size_t>(random_() % kKinds));
      for (auto steps = random_() % 12; steps > 0; --steps) engine_->Step();
      if (i == std::min<int64_t>(requests_ / 10, 2000)) early = ResidentKib();
      if (i % 100 == 0 && !engine_->cache().CheckAccounts().ok()) ++leaked_;
    }
    for (StepReport report{1}; report.tokens > 0 || report.running + report.waiting > 0;) {
      report = engine_->Step();
    }
    const int64_t held = engine_->cache().pool().num_held();
    if (told_ != given_ || !engine_->cache().CheckAccounts().ok()) ++leaked_;
    std::printf(
        "%ld completions: %ld whole, %ld cancelled, %ld failed; %ld of their tokens shared\n",
        static_cast<long>(told_), static_cast<long>(whole_), static_cast<long>(cancelled_),
        static_cast<long>(failed_), static_cast<long>(engine_->stats().shared_tokens));
    std::printf("resident %ld KiB early, %ld at the end\n", static_cast<long>(early),
                static_cast<long>(ResidentKib()));
    std::printf("held pages %ld, leaked %ld, differing %ld\n", static_cast<long>(held),
                static_cast<long>(leaked_), static_cast<long>(differing_));
    const bool all = whole_ > 0 && cancelled_ > 0 && failed_ > 0;
    return held == 0 && leaked_ == 0 && differing_ == 0 && all ? 0 : 1;
  }

 private:
  void Submit(const std::vector<Request>& kinds, size_t kind) {
    given_ += kinds[kind].samples;
    const RequestId id = Must(
        engine_->Submit(kinds[kind], {.on_done = [this, kind](int64_t sample, Completion made) {
                          Take(expected_[kind][sample], made);
                        }}));
    if (random_() % 5 == 0) cancels_.push_back(id);
    if (!cancels_.empty() && random_() % 3 == 0) {
      engine_->Cancel(cancels_.back());
      cancels_.pop_back();
    }
  }
  // What came before an end is what comes alone, too.
  void Take(const Completion& expected, const Completion& made) {
    ++told_;
    cancelled_ += made.finish == FinishReason::kCancelled ? 1 : 0;
    failed_ += made.finish == FinishReason::kFailed ? 1 : 0;
    const bool ended =
        made.finish == FinishReason::kCancelled || made.finish == FinishReason::kFailed;
    whole_ += ended ? 0 : 1;
    const bool begins = made.tokens.size() <= expected.tokens.size() &&
                        std::equal(made.tokens.begin(), made.tokens.end(), expected.tokens.begin());
    if (!begins || (!ended && made.tokens.size() != expected.tokens.size())) ++differing_;
  }

  const int64_t requests_;
  std::mt19937 random_;
  std::unique_ptr<Engine> engine_;
  std::vector<std::vector<Completion>> expected_;
  std::vector<RequestId> cancels_;
  int64_t given_ = 0, told_ = 0, whole_ = 0, cancelled_ = 0, failed_ = 0;
  int64_t leaked_ = 0, differing_ = 0;
};

}  // namespace
}  // namespace pagefuse

int main(int argc, char** argv) {
  CLI::App app("An engine under load for long.");
  int64_t requests = 2000;
  uint32_t seed = 1;
  app.add_option("--requests", requests);
  app.add_option("--seed", seed);
  CLI11_PARSE(app, argc, argv);
  return pagefuse::Soak(requests, seed).Run();
}
