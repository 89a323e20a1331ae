// SPDX-License-Identifier: Apache-2.0
// The scheduler and its cache without a model: what loads cost in tokens, steps and time of planning.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/runtime/scheduler.h"

namespace pagefuse {
namespace {

using Clock = std::chrono::steady_clock;

double Milliseconds(Clock::time_point since) {
  return std::chrono::duration<double, std::milli>(Clock::now() - since).count();
}

// Blocks of 16 tokens: so many that keep all rows, and as many of a window.
std::vector<CacheGroup> Groups(int64_t window) {
  return {MakeCacheGroup(CacheGroupKey::Full(), 16),
          MakeCacheGroup(CacheGroupKey::Window(window), 16)};
}

// Requests that run to their ends, as the engine has them.
class Load {
 public:
  Load(int64_t cache_tokens, int64_t window, const Scheduler::Options& options)
      : cache_(Groups(window), 2 * cache_tokens / 16, {.keeps_texts = true}),
        scheduler_(&cache_, options) {}

  // A prompt and how many tokens follow it.
  size_t Add(std::vector<int64_t> prompt, int64_t writes) {
    Text& text = texts_.emplace_back();
    text.tokens = std::move(prompt);
    text.left = writes;
    const auto read = static_cast<int64_t>(text.tokens.size());
    return scheduler_.Add(
        {.tokens = &text.tokens, .num_read = read, .most_tokens = read + writes - 1});
  }
  // One step; told each share of it.
  void Step(const std::function<void(const Scheduler::Work&)>& on_work = nullptr) {
    const auto start = Clock::now();
    const auto step = scheduler_.Next();
    plan_ms_ += Milliseconds(start);
    PF_CHECK(step.ok());
    scheduler_.Commit(*step);
    ++steps_;
    for (const Scheduler::Work& work : step->work) {
      computed_ += work.num_tokens;
      if (on_work) on_work(work);
      if (!work.last) continue;
      Text& text = texts_[work.request];
      if (--text.left == 0) {
        scheduler_.Finish(work.request);
      } else {
        text.tokens.push_back(1);
      }
    }
  }
  void Run() {
    while (!scheduler_.done()) Step();
  }

  Scheduler& scheduler() { return scheduler_; }
  PagedCache& cache() { return cache_; }
  int64_t steps() const { return steps_; }
  int64_t computed() const { return computed_; }
  double plan_ms() const { return plan_ms_; }

 private:
  struct Text {
    std::vector<int64_t> tokens;
    int64_t left = 0;
  };
  PagedCache cache_;
  Scheduler scheduler_;
  std::deque<Text> texts_;
  int64_t steps_ = 0, computed_ = 0;
  double plan_ms_ = 0;
};

std::vector<int64_t> Prompt(int64_t who, int64_t tokens) {
  std::vector<int64_t> prompt(tokens);
  for (int64_t i = 0; i < tokens; ++i) prompt[i] = 100000 * (who + 1) + i;
  return prompt;
}

// Forty requests of 500 to 1300 tokens, half of them written, in pools for few of them.
void Thrash() {
  for (const double room : {5.0, 2.4, 1.7, 1.2}) {
    std::mt19937 random(1);
    Load load(static_cast<int64_t>(room * 1300), 512, {});
    int64_t needed = 0;
    for (int64_t i = 0; i < 40; ++i) {
      const auto tokens = static_cast<int64_t>(500 + random() % 801);
      load.Add(Prompt(i, tokens / 2), tokens - tokens / 2);
      needed += tokens - 1;
    }
    load.Run();
    std::printf(
        "pool for %.1f of the longest: computed / needed %.3f, %ld steps, %ld preemptions\n", room,
        static_cast<double>(load.computed()) / static_cast<double>(needed),
        static_cast<long>(load.steps()), static_cast<long>(load.scheduler().preemptions()));
  }
}

// A prompt of 100,000 tokens, and behind it one of 50 every four steps.
void LongPrompt() {
  Load load(200000, 512, {});
  const size_t large = load.Add(Prompt(0, 100000), 1);
  std::map<size_t, int64_t> came;
  int64_t worst = 0, of_large = 0, all = 0;
  for (int64_t i = 0; !load.scheduler().done();) {
    if (load.steps() % 4 == 3 && i < 100) came[load.Add(Prompt(++i, 50), 1)] = load.steps();
    load.Step([&](const Scheduler::Work& work) {
      all += work.num_tokens;
      of_large += work.request == large ? work.num_tokens : 0;
      if (work.request != large) worst = std::max(worst, load.steps() - came[work.request]);
    });
    if (i == 100 && came.size() == 100 && load.scheduler().num_running() <= 1) break;
  }
  std::printf(
      "first token of a short prompt after %ld steps at most; %.0f %% of the tokens are the "
      "long one's\n",
      static_cast<long>(worst), 100 * static_cast<double>(of_large) / static_cast<double>(all));
}

void Cancel() {
  Load load(4096, 512, {});
  std::vector<size_t> waiting;
  for (int64_t i = 0; i < 10000; ++i) waiting.push_back(load.Add(Prompt(i, 100), 1));
  const auto start = Clock::now();
  for (const size_t request : waiting) load.scheduler().Finish(request);
  std::printf("10000 that wait are cancelled in %.2f ms\n", Milliseconds(start));
}

// Steps in which all sequences decode, 1000 tokens each.
void Plan() {
  for (const int64_t sequences : {64, 1024, 4096, 10000}) {
    Load load(sequences * 1200, 512,
              {.max_tokens_per_step = std::max<int64_t>(2 * sequences, 65536),
               .max_sequences = sequences});
    for (int64_t i = 0; i < sequences; ++i) load.Add(Prompt(i, 1000), 100);
    while (load.computed() < sequences * 1001) load.Step();
    const double before = load.plan_ms();
    constexpr int kSteps = 20;
    for (int i = 0; i < kSteps; ++i) load.Step();
    std::printf("%ld sequences: %.3f ms a plan\n", static_cast<long>(sequences),
                (load.plan_ms() - before) / kSteps);
  }
}

// Eight conversations in turns that come to 8000 tokens, each turn with all that was before.
void Conversations() {
  for (const int64_t pool : {70000, 40000}) {
    Load load(pool, 512, {});
    std::map<int64_t, std::vector<int64_t>> texts;
    int64_t known = 0, shared = 0;
    for (int turn = 0; turn < 10; ++turn) {
      for (int64_t who = 0; who < 8; ++who) {
        std::vector<int64_t>& text = texts[who];
        const auto before = static_cast<int64_t>(text.size());
        for (int64_t i = 0; i < 800; ++i) text.push_back(100000 * (who + 1) + before + i);
        const int64_t had = load.scheduler().shared_tokens();
        load.Add(text, 1);
        load.Run();
        if (turn == 0) continue;
        known += before;
        shared += load.scheduler().shared_tokens() - had;
      }
    }
    std::printf("a pool for %ld tokens: %.1f %% of what was there before is found again\n",
                static_cast<long>(pool),
                100 * static_cast<double>(shared) / static_cast<double>(known));
  }
}

}  // namespace
}  // namespace pagefuse

int main(int argc, char** argv) {
  const std::map<std::string, void (*)()> cases = {{"cancel", pagefuse::Cancel},
                                                   {"conversations", pagefuse::Conversations},
                                                   {"long-prompt", pagefuse::LongPrompt},
                                                   {"plan", pagefuse::Plan},
                                                   {"thrash", pagefuse::Thrash}};
  CLI::App app("Loads of a scheduler without a model.");
  std::vector<std::string> names;
  for (const auto& [name, run] : cases) names.push_back(name);
  std::vector<std::string> chosen = names;
  app.add_option("--case", chosen, "Which ones; all where none is named")
      ->check(CLI::IsMember(names));
  CLI11_PARSE(app, argc, argv);
  for (const std::string& name : chosen) {
    std::printf("%s\n", name.c_str());
    cases.at(name)();
  }
  return 0;
}
