// SPDX-License-Identifier: Apache-2.0
// What guesses of next tokens gain where a text copies its prompt, and cost where it is random: the
// answers are given, so that both engines run the same tokens.
#include <algorithm>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/runtime/engine.h"

namespace pagefuse {
namespace {

constexpr int64_t kPrompt = 256, kAnswer = 128;

// The prompt again, or anything.
Request MakeRequest(bool copies, int64_t vocabulary, uint32_t seed) {
  std::mt19937 random(seed);
  Request request;
  request.max_new_tokens = kAnswer;
  for (int64_t i = 0; i < kPrompt; ++i) {
    request.prompt.push_back(static_cast<int64_t>(random() % vocabulary));
  }
  for (int64_t i = 0; i < kAnswer; ++i) {
    const auto other = static_cast<int64_t>(random() % vocabulary);
    request.forced.push_back(copies ? request.prompt[i] : other);
  }
  return request;
}

absl::StatusOr<double> DecodeSeconds(Engine& engine, const Request& request) {
  const double before = engine.stats().decode_seconds;
  PF_ASSIGN_OR_RETURN(const auto completions, engine.Generate({request}));
  PF_RETURN_IF_ERROR(FirstError(completions));
  return engine.stats().decode_seconds - before;
}

absl::Status Run(const std::string& path, const std::string& weights) {
  EngineOptions options{.prefix_reuse = PrefixReuse::kOff};
  PF_ASSIGN_OR_RETURN(const WeightFormat format, FindWeightFormat(weights));
  UseWeights(format, options.session);
  PF_ASSIGN_OR_RETURN(const auto with, Engine::Load(path, options));
  options.drafts = false;
  PF_ASSIGN_OR_RETURN(const auto without, Engine::Load(path, options));
  for (const bool copies : {true, false}) {
    std::vector<double> ratios;
    for (uint32_t run = 0; run < 7; ++run) {
      const Request request = MakeRequest(copies, with->vocabulary(), run);
      PF_ASSIGN_OR_RETURN(const double slow, DecodeSeconds(*without, request));
      PF_ASSIGN_OR_RETURN(const double fast, DecodeSeconds(*with, request));
      ratios.push_back(slow / fast);
    }
    std::ranges::sort(ratios);
    std::printf("%s: %.2f times as fast (%.2f to %.2f in %zu runs)\n",
                copies ? "text copied from the prompt" : "random text", ratios[ratios.size() / 2],
                ratios.front(), ratios.back(), ratios.size());
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace pagefuse

int main(int argc, char** argv) {
  CLI::App app("What drafts gain and cost.");
  std::string path, weights = "float32";
  app.add_option("model", path, "A graph")->required();
  app.add_option("--weights", weights, "Their format");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = pagefuse::Run(path, weights);
  if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
