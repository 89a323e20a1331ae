// SPDX-License-Identifier: Apache-2.0
// Two calls whose prompts begin with the same tokens: the time to the first token of each, and whether
// the second one's logits are those of an engine that knows nothing.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/runtime/engine.h"

namespace pagefuse {
namespace {

struct Answer {
  double seconds;  // to the first token
  Completion completion;
};

absl::StatusOr<Answer> Ask(Engine& engine, const Request& request) {
  const auto start = std::chrono::steady_clock::now();
  double seconds = 0;
  const auto on_token = [&](const NewToken&) {
    const std::chrono::duration<double> since = std::chrono::steady_clock::now() - start;
    if (seconds == 0) seconds = since.count();
    return true;
  };
  PF_ASSIGN_OR_RETURN(std::vector<Completion> completions, engine.Generate({request}, on_token));
  PF_RETURN_IF_ERROR(FirstError(completions));
  return Answer{seconds, std::move(completions[0])};
}

absl::Status Run(const std::string& path, int64_t shared, int64_t own) {
  PF_ASSIGN_OR_RETURN(const auto engine, Engine::Load(path, {}));
  PF_ASSIGN_OR_RETURN(const auto apart, Engine::Load(path, {.prefix_reuse = PrefixReuse::kOff}));
  const int64_t vocabulary = engine->vocabulary();
  std::vector<double> ratios;
  for (int64_t run = 0; run < 5; ++run) {
    Answer answers[2];
    Request request;
    request.max_new_tokens = 8;
    request.keep_logits = true;
    for (int64_t call = 0; call < 2; ++call) {
      request.prompt.clear();
      for (int64_t i = 0; i < shared + own; ++i) {
        const int64_t token = i < shared ? 7 * i + run : 5 * i + 3 * call + run;
        request.prompt.push_back(token % vocabulary);
      }
      PF_ASSIGN_OR_RETURN(answers[call], Ask(*engine, request));
    }
    PF_ASSIGN_OR_RETURN(const Answer alone, Ask(*apart, request));
    const bool equal = alone.completion.logits == answers[1].completion.logits;
    ratios.push_back(answers[0].seconds / answers[1].seconds);
    std::printf(
        "first call %.2f ms, second %.2f ms (%ld tokens were there): %.1f times; logits %s\n",
        1e3 * answers[0].seconds, 1e3 * answers[1].seconds,
        static_cast<long>(answers[1].completion.cached_tokens), ratios.back(),
        equal ? "equal in all bits" : "differ");
    if (!equal) return absl::InternalError("the second answer is not that of the prompt alone");
  }
  std::ranges::sort(ratios);
  std::printf("median: the second call's first token comes %.1f times sooner\n",
              ratios[ratios.size() / 2]);
  return absl::OkStatus();
}

}  // namespace
}  // namespace pagefuse

int main(int argc, char** argv) {
  CLI::App app("Two calls whose prompts begin alike.");
  std::string path;
  int64_t shared = 4096, own = 16;
  app.add_option("model", path, "A graph")->required();
  app.add_option("--shared", shared, "Tokens that both prompts begin with");
  app.add_option("--own", own, "Tokens behind them");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = pagefuse::Run(path, shared, own);
  if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
