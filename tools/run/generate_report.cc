// SPDX-License-Identifier: Apache-2.0
// What `pagefuse generate` tells at its end.
#include <iostream>

#include "absl/strings/str_format.h"
#include "tools/cli/output.h"
#include "tools/cli/verbosity.h"
#include "tools/run/generate.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse::tools {
namespace {

using Json = nlohmann::ordered_json;

double PerSecond(int64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

std::string FinishName(const Completion& completion, bool stopped) {
  if (completion.finish == FinishReason::kFailed) return "failed";
  if (completion.finish == FinishReason::kRefused) return "refused";
  const bool stop = stopped || completion.finish == FinishReason::kStop;
  return stop ? "stop" : completion.finish == FinishReason::kLength ? "length" : "ended";
}

Json CompletionJson(size_t i, const Request& request, const Completion& completion,
                    const Answers& answers) {
  Json item;
  item["tokens"] = completion.tokens;
  if (answers.has_text()) item["text"] = answers.text(i);
  item["prompt_tokens"] = request.prompt.size();
  item["finish"] = FinishName(completion, answers.stopped(i));
  if (completion.as_exported) item["as_exported"] = true;
  if (!completion.error.ok()) item["error"] = std::string(StdView(completion.error.message()));
  if (request.sampling.temperature > 0) item["seed"] = completion.seed;
  for (size_t t = 0; t < completion.logprobs.size(); ++t) {
    item["logprobs"].push_back(answers.LogprobsJson(completion.tokens[t], completion.logprobs[t]));
  }
  return item;
}

}  // namespace

Json GenerateFigures(const GenerateFlags& flags, const Decoder& decoder) {
  const EngineStats stats = decoder.stats();
  const Graph& graph = *decoder.session().model().graph;
  Json json;
  json["fused"] = CountOps(graph, "pagefuse");
  json["nodes"] = graph.num_nodes();
  json["paged"] = decoder.engine() != nullptr;
  if (const Engine* engine = decoder.engine()) {
    const CacheSettings& cache = engine->cache_settings();
    json["kv_cache"] = cache.format;
    if (!cache.skipped_layers.empty()) json["kv_cache_skip_layers"] = cache.skipped_layers;
    if (cache.index_format) json["indexer_cache"] = *cache.index_format;
    if (cache.block_size) json["block_size"] = *cache.block_size;
  } else {
    json["why_not_paged"] = decoder.why_not_paged();
    json["kv_cache"] = decoder.plain()->keeps_past() ? "of the graph" : "nothing";
  }
  if (const auto& verdict = decoder.verdict()) json["verdict"] = verdict->Text();
  json["cache_bytes_per_token"] = stats.cache_bytes_per_token;
  json["cache_bytes_per_sequence"] = stats.cache_bytes_per_sequence;
  json["prefill_tokens"] = stats.prefill_tokens;
  json["shared_tokens"] = stats.shared_tokens;
  json["decode_tokens"] = stats.decode_tokens;
  json["prefill_tokens_per_second"] = PerSecond(stats.prefill_tokens, stats.prefill_seconds);
  json["decode_tokens_per_second"] = PerSecond(stats.decode_tokens, stats.decode_seconds);
  json["weights"] = flags.session.weights.format;
  json["peak_memory_bytes"] = PeakMemoryBytes();
  return json;
}

Json GenerateResults(const std::vector<Request>& requests,
                     const std::vector<Completion>& completions, const Answers& answers) {
  Json items = Json::array();
  for (const Request& request : requests) {
    for (int64_t sample = 0; sample < NumCompletions(request); ++sample) {
      items.push_back(CompletionJson(items.size(), request, completions[items.size()], answers));
    }
  }
  return items;
}

Json GenerateUsage(const std::vector<Request>& requests,
                   const std::vector<Completion>& completions) {
  Json items = Json::array();
  size_t next = 0;
  for (const Request& request : requests) {
    size_t prompt = request.prompt.size(), made = 0;
    // Its samples share the prompt.
    const int64_t cached = completions[next].cached_tokens;
    for (int64_t sample = 0; sample < NumCompletions(request); ++sample) {
      made += completions[next++].tokens.size();
    }
    items.push_back({{"prompt_tokens", prompt},
                     {"completion_tokens", made},
                     {"total_tokens", prompt + made},
                     {"prompt_tokens_details", {{"cached_tokens", cached}}}});
  }
  return items;
}

namespace {

// "2523", "7.4"
std::string Rate(double rate) {
  return rate < 100 ? absl::StrFormat("%.1f", rate) : absl::StrFormat("%.0f", rate);
}

// "43 ms", "1.2 s"
std::string Duration(double seconds) {
  return seconds < 1 ? absl::StrFormat("%.0f ms", seconds * 1e3)
                     : absl::StrFormat("%.1f s", seconds);
}

std::string FiguresLine(const Json& figures) {
  const int64_t tokens = figures.value("new_tokens", figures["decode_tokens"].get<int64_t>());
  std::string text = StrCat(tokens, tokens == 1 ? " token" : " tokens");
  if (figures["decode_tokens"] > 0) {
    StrAppend(&text, ", ", Rate(figures["decode_tokens_per_second"].get<double>()), " a second");
  }
  if (figures.contains("seconds_to_first_token")) {
    StrAppend(&text, ", the first after ",
              Duration(figures["seconds_to_first_token"].get<double>()));
  }
  return text;
}

void PrintAllFigures(const Decoder& decoder, const Json& json) {
  std::cerr << "fused: " << JoinCounts(CountOps(*decoder.session().model().graph, "pagefuse"))
            << "\n";
  std::cerr << "graph: " << json["nodes"] << " nodes\n";
  const std::string device = decoder.session().DeviceReport();
  if (!device.empty()) std::cerr << "device: " << device << "\n";
  std::cerr << "cache: " << json["kv_cache"].get<std::string>()
            << (json.contains("kv_cache_skip_layers")
                    ? StrCat(" but in layers ", JsonText(json["kv_cache_skip_layers"]))
                    : "")
            << (json.contains("indexer_cache")
                    ? StrCat(", index keys: ", json["indexer_cache"].get<std::string>())
                    : "")
            << ", " << json["cache_bytes_per_token"] << " bytes a token"
            << (json["cache_bytes_per_sequence"] > 0
                    ? StrCat(" and ", HumanBytes(json["cache_bytes_per_sequence"]), " a sequence")
                    : "")
            << "\n";
  std::cerr << "prefill: " << json["prefill_tokens"] << " tokens, "
            << static_cast<int64_t>(json["prefill_tokens_per_second"].get<double>())
            << " a second\n";
  std::cerr << "decode: " << json["decode_tokens"] << " tokens, "
            << static_cast<int64_t>(json["decode_tokens_per_second"].get<double>())
            << " a second\n";
  std::cerr << "memory: " << HumanBytes(json["peak_memory_bytes"]) << " at its peak\n";
  if (json.contains("max_logit_error")) {
    std::cerr << "logits: " << json["max_logit_error"] << " at most from an unquantised cache "
              << "and the weights of the file\n";
  }
}

}  // namespace

bool PrintsFiguresLine() { return ChosenVerbosity() == Verbosity::kUsual && ErrorsAreOnTerminal(); }

void PrintFigures(const Decoder& decoder, const Json& figures) {
  if (ChosenVerbosity() == Verbosity::kVerbose) return PrintAllFigures(decoder, figures);
  if (PrintsFiguresLine()) std::cerr << Dimmed(FiguresLine(figures)) << "\n";
}

}  // namespace pagefuse::tools
