// Times prefill and decode of a decoder graph in the engine, and prints one JSON object with the
// keys of ort_peer/peer.js.
//
//   generate_bench MODEL [--prefill 512] [--contexts 512,2048] [--steps 8] [--repeats 3] [--threads
//   2] [--weights bf16]
#include <algorithm>
#include <cstdint>
#include <iostream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "peaks.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/runtime/engine.h"

namespace pagefuse {
namespace {

using Json = nlohmann::json;

struct Options {
  std::string model;
  int64_t prefill = 512;
  std::vector<int64_t> contexts = {512};
  int64_t steps = 8;
  int repeats = 3;
  int threads = 2;
  std::string weights = "float32";
  std::string kv_cache = "none";
};

Request MakeRequest(int64_t tokens, int64_t new_tokens) {
  Request request;
  for (int64_t i = 0; i < tokens; ++i) request.prompt.push_back(2 + i * 37 % 1000);
  request.max_new_tokens = new_tokens;
  return request;
}

// Seconds of a run of that many tokens that gives one new token, the shortest of all.
absl::StatusOr<double> TimePrefill(Engine& engine, int64_t tokens, int repeats) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < repeats; ++i) {
    const double start = Now();
    PF_RETURN_IF_ERROR(engine.Generate({MakeRequest(tokens, 1)}).status());
    best = std::min(best, Now() - start);
  }
  return best;
}

// Mean seconds of a step behind `context` tokens.
absl::StatusOr<double> TimeDecode(Engine& engine, int64_t context, int64_t steps) {
  const EngineStats before = engine.stats();
  PF_RETURN_IF_ERROR(engine.Generate({MakeRequest(context, steps + 1)}).status());
  const EngineStats after = engine.stats();
  return (after.decode_seconds - before.decode_seconds) /
         static_cast<double>(after.decode_tokens - before.decode_tokens);
}

absl::StatusOr<Json> Measure(const Options& options) {
  EngineOptions engine_options;
  engine_options.session.num_threads = options.threads;
  engine_options.kv_cache = options.kv_cache;
  engine_options.share_prefixes = false;  // every prompt is computed
  PF_ASSIGN_OR_RETURN(const WeightChoice weights, FindWeightChoice(options.weights));
  UseWeights(weights, engine_options.session);
  const double start = Now();
  PF_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                      Engine::Load(options.model, engine_options));
  Json report = {{"program", "pagefuse"},
                 {"version", options.weights},
                 {"session_seconds", Now() - start},
                 {"decode", Json::array()}};
  if (options.prefill > 0) {
    report["prefill_tokens"] = options.prefill;
    // The first run reads the mapped weights from the file.
    PF_RETURN_IF_ERROR(engine->Generate({MakeRequest(options.prefill, 1)}).status());
    report["first_token_seconds"] = Now() - start;
    PF_ASSIGN_OR_RETURN(report["prefill_seconds"],
                        TimePrefill(*engine, options.prefill, options.repeats));
  }
  for (int64_t context : options.contexts) {
    PF_ASSIGN_OR_RETURN(const double seconds, TimeDecode(*engine, context, options.steps));
    report["decode"].push_back({{"context", context}, {"seconds_per_token", seconds}});
  }
  report["peak_rss_bytes"] = PeakResidentBytes();
  return report;
}

}  // namespace
}  // namespace pagefuse

int main(int argc, char** argv) {
  pagefuse::Options options;
  CLI::App app("Times prefill and decode of a decoder graph");
  app.add_option("model", options.model)->required();
  app.add_option("--prefill", options.prefill, "prompt length, 0 for none");
  app.add_option("--contexts", options.contexts, "lengths to decode behind")->delimiter(',');
  app.add_option("--steps", options.steps, "decoded tokens")->check(CLI::PositiveNumber);
  app.add_option("--repeats", options.repeats)->check(CLI::PositiveNumber);
  app.add_option("--threads", options.threads);
  app.add_option("--weights", options.weights, pagefuse::WeightChoiceNames());
  app.add_option("--kv-cache", options.kv_cache);
  CLI11_PARSE(app, argc, argv);
  const absl::StatusOr<nlohmann::json> report = pagefuse::Measure(options);
  if (!report.ok()) {
    std::cerr << "generate_bench: " << report.status().message() << "\n";
    return 1;
  }
  std::cout << report->dump() << "\n";
  return 0;
}
