// pagefuse generate: prompts in, tokens out, through the fused graph.
#include <iostream>
#include <memory>
#include <optional>

#include "nlohmann/json.hpp"
#include "tools/cache_flags.h"
#include "tools/command.h"
#include "tools/output.h"
#include "tools/profile.h"
#include "tools/prompts.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/onnx_io.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/passes/page/page.h"
#include "pagefuse/runtime/decoder.h"
#include "pagefuse/runtime/model_config.h"

namespace pagefuse::tools {
namespace {

struct Flags {
  std::string model;
  std::vector<std::string> prompt_ids, prompts;
  std::string prompt_file, stop;
  std::optional<int64_t> max_new_tokens;
  EngineOptions engine;
  CacheFlags cache;
  SessionFlags session;
  ProfileFlags profiling;
  bool json = false, logit_error = false, warm_up = false;
  bool require_paged = false, ignore_end = false;
};

double PerSecond(int64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

// New tokens for a prompt: as many as asked for, by default as many as the model has places for.
absl::StatusOr<int64_t> NewTokens(const Flags& flags, const ModelConfig& config, size_t prompt) {
  constexpr int64_t kDefault = 32;
  const int64_t wanted = flags.max_new_tokens.value_or(kDefault);
  if (!config.max_positions) return wanted;
  const int64_t room = *config.max_positions - static_cast<int64_t>(prompt);
  if (room >= wanted) return wanted;
  if (room > 0 && !flags.max_new_tokens) return room;
  return absl::InvalidArgumentError(StrCat(
      "a prompt of ", prompt, " tokens and ", wanted, " new ones: expected ", *config.max_positions,
      " at most, the positions of the model (", config.max_positions_file, ")"));
}

absl::StatusOr<std::vector<Request>> MakeRequests(const Flags& flags, const ModelConfig& config,
                                                  int64_t vocabulary) {
  std::vector<Request> requests;
  for (const std::string& text : flags.prompt_ids) {
    auto ids = ParseIds(text);
    if (!ids.ok()) {
      return absl::InvalidArgumentError(StrCat("--prompt-ids: ", StdView(ids.status().message())));
    }
    requests.push_back({.prompt = *std::move(ids)});
  }
  std::vector<std::string> texts = flags.prompts;
  if (!flags.prompt_file.empty()) {
    PF_ASSIGN_OR_RETURN(std::string text, ReadFile(flags.prompt_file));
    texts.push_back(std::move(text));
  }
  if (!texts.empty() && vocabulary != 256) {
    return absl::InvalidArgumentError(
        StrCat("--prompt takes text for byte vocabularies (256 tokens); this "
               "model has ",
               vocabulary, ": use --prompt-ids"));
  }
  for (const std::string& text : texts) {
    requests.push_back({.prompt = EncodeBytes(text, config.begin_token)});
  }
  if (requests.empty())
    return absl::InvalidArgumentError("no prompt: use --prompt-ids or --prompt");
  for (Request& request : requests) {
    PF_ASSIGN_OR_RETURN(request.max_new_tokens, NewTokens(flags, config, request.prompt.size()));
    for (unsigned char byte : flags.stop) request.stop_tokens.push_back(byte);
    if (flags.ignore_end) continue;
    request.stop_tokens.insert(request.stop_tokens.end(), config.end_tokens.begin(),
                               config.end_tokens.end());
  }
  return requests;
}

// Largest difference of logits against an unquantised cache and the weights of the file, fed the
// same tokens.
absl::StatusOr<double> LogitError(Model model, const EngineOptions& options,
                                  std::vector<Request> requests,
                                  const std::vector<Completion>& completions) {
  EngineOptions reference_options = options;
  reference_options.kv_cache = "none";
  UseWeights({}, reference_options.session);
  reference_options.on_step = nullptr;
  PF_ASSIGN_OR_RETURN(auto reference, Engine::Create(std::move(model), reference_options));
  for (size_t i = 0; i < requests.size(); ++i) requests[i].forced = completions[i].tokens;
  for (Request& request : requests) request.stop_tokens.clear();
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].max_new_tokens = static_cast<int64_t>(completions[i].tokens.size());
  }
  PF_ASSIGN_OR_RETURN(std::vector<Completion> expected, reference->Generate(requests));
  double error = 0;
  for (size_t i = 0; i < completions.size(); ++i) {
    for (size_t t = 0; t < completions[i].logits.size(); ++t) {
      for (size_t v = 0; v < completions[i].logits[t].size(); ++v) {
        error = std::max<double>(error,
                                 std::abs(completions[i].logits[t][v] - expected[i].logits[t][v]));
      }
    }
  }
  return error;
}

nlohmann::ordered_json Report(const Flags& flags, const Decoder& decoder,
                              const std::vector<Request>& requests,
                              const std::vector<Completion>& completions) {
  const EngineStats stats = decoder.stats();
  nlohmann::ordered_json json;
  const bool bytes = decoder.vocabulary() == 256;
  auto completion = [&](size_t i) {
    nlohmann::ordered_json item;
    item["tokens"] = completions[i].tokens;
    if (bytes) item["text"] = DecodeBytes(completions[i].tokens);
    item["prompt_tokens"] = requests[i].prompt.size();
    return item;
  };
  if (completions.size() == 1) {
    json = completion(0);
  } else {
    for (size_t i = 0; i < completions.size(); ++i) json["completions"].push_back(completion(i));
  }
  const Graph& graph = *decoder.session().model().graph;
  json["fused"] = CountOps(graph, "pagefuse");
  json["nodes"] = graph.num_nodes();
  json["paged"] = decoder.engine() != nullptr;
  if (const Engine* engine = decoder.engine()) {
    const CacheSettings& cache = engine->cache_settings();
    json["kv_cache"] = cache.format;
    if (!cache.skipped_layers.empty()) json["kv_cache_skip_layers"] = cache.skipped_layers;
    if (cache.block_size) json["block_size"] = *cache.block_size;
  } else {
    json["why_not_paged"] = decoder.why_not_paged();
    json["kv_cache"] = decoder.plain()->keeps_past() ? "of the graph" : "nothing";
  }
  json["cache_bytes_per_token"] = stats.cache_bytes_per_token;
  json["prefill_tokens"] = stats.prefill_tokens;
  json["decode_tokens"] = stats.decode_tokens;
  json["prefill_tokens_per_second"] = PerSecond(stats.prefill_tokens, stats.prefill_seconds);
  json["decode_tokens_per_second"] = PerSecond(stats.decode_tokens, stats.decode_seconds);
  json["weights"] = flags.session.weights.format;
  json["peak_memory_bytes"] = PeakMemoryBytes();
  return json;
}

void PrintReadable(const Decoder& decoder, const nlohmann::ordered_json& json) {
  std::cout << "fused: " << JoinCounts(CountOps(*decoder.session().model().graph, "pagefuse"))
            << "\n";
  std::cout << "graph: " << json["nodes"] << " nodes\n";
  std::cout << "cache: " << json["kv_cache"].get<std::string>()
            << (json.contains("kv_cache_skip_layers")
                    ? StrCat(" but in layers ", JsonText(json["kv_cache_skip_layers"]))
                    : "")
            << ", " << json["cache_bytes_per_token"] << " bytes a token\n";
  std::cout << "prefill: " << json["prefill_tokens"] << " tokens, "
            << static_cast<int64_t>(json["prefill_tokens_per_second"].get<double>())
            << " a second\n";
  std::cout << "decode: " << json["decode_tokens"] << " tokens, "
            << static_cast<int64_t>(json["decode_tokens_per_second"].get<double>())
            << " a second\n";
  std::cout << "memory: " << HumanBytes(json["peak_memory_bytes"]) << " at its peak\n";
  if (json.contains("max_logit_error")) {
    std::cout << "logits: " << json["max_logit_error"] << " at most from an unquantised cache "
              << "and the weights of the file\n";
  }
  const auto items =
      json.contains("completions") ? json["completions"] : nlohmann::ordered_json{json};
  for (const auto& item : items) {
    std::cout << "tokens: " << JsonText(item["tokens"]) << "\n";
    if (item.contains("text")) std::cout << "text: " << item["text"].get<std::string>() << "\n";
  }
}

// A model from standard input has no files beside it.
absl::StatusOr<ModelConfig> ConfigOf(const Flags& flags) {
  if (flags.model == "-") return ModelConfig{};
  return ReadModelConfig(flags.model);
}

void Warn(const Decoder& decoder) {
  std::cerr << "pagefuse: NOT PAGED: " << decoder.why_not_paged()
            << "; generating with the graph as "
            << "it was exported, one sequence at a time, "
            << (decoder.plain()->keeps_past() ? "over its own past"
                                              : "from the first token again for every new one")
            << " (--require-paged makes this an error)\n";
}

absl::Status Generate(Flags flags) {
  PF_ASSIGN_OR_RETURN(flags.engine.session, MakeSessionOptions(flags.session));
  PF_RETURN_IF_ERROR(ReadCacheFlags(flags.cache, flags.engine.session.pipeline.options));
  flags.engine.kv_cache = flags.cache.format;
  ProfileLog log;
  if (flags.profiling.wanted()) {
    flags.engine.session.profile = true;
    flags.engine.on_step = [&log](const EngineStep& step) {
      log.Add(*step.session, step.decode ? "decode" : "prefill", step.start);
    };
  }
  PF_ASSIGN_OR_RETURN(const ModelConfig config, ConfigOf(flags));
  std::optional<Model> kept;  // what is kept has its weights in memory
  const auto load = [&]() -> absl::StatusOr<Model> {
    if (kept) return kept->Clone();
    PF_ASSIGN_OR_RETURN(Model model, ReadModel(flags.model));
    // Standard input is read once.
    if (flags.logit_error || flags.model == "-") kept = model.Clone();
    return model;
  };
  PF_ASSIGN_OR_RETURN(auto decoder, Decoder::Create(load, flags.engine, flags.require_paged));
  if (decoder->plain()) Warn(*decoder);
  PrintUnfused(decoder->session().report(), /*attention=*/decoder->engine() != nullptr);
  if (decoder->plain() && flags.logit_error) {
    return absl::InvalidArgumentError(
        "--logit-error compares with an unquantised paged cache, and the graph could not be paged");
  }
  PF_ASSIGN_OR_RETURN(std::vector<Request> requests,
                      MakeRequests(flags, config, decoder->vocabulary()));
  for (Request& request : requests) request.keep_logits = flags.logit_error;
  if (flags.warm_up) PF_RETURN_IF_ERROR(decoder->WarmUp(requests));
  PF_ASSIGN_OR_RETURN(std::vector<Completion> completions, decoder->Generate(requests));
  PF_RETURN_IF_ERROR(log.Write(flags.profiling));
  nlohmann::ordered_json json = Report(flags, *decoder, requests, completions);
  if (flags.logit_error) {
    PF_ASSIGN_OR_RETURN(json["max_logit_error"],
                        LogitError(*std::move(kept), flags.engine, requests, completions));
  }
  if (flags.json) {
    std::cout << JsonText(json) << "\n";
  } else {
    PrintReadable(*decoder, json);
  }
  return absl::OkStatus();
}

}  // namespace

void AddGenerateCommand(Command app, Outcome& outcome) {
  auto flags = std::make_shared<Flags>();
  Command command = app.AddCommand("generate", "generates tokens through the fused graph",
                                   [flags, &outcome] { outcome.status = Generate(*flags); });
  command.AddText("model", flags->model, "ONNX model of a decoder; - for standard input")
      .Required();
  command.AddTexts("--prompt-ids", flags->prompt_ids,
                   "token ids with commas; several times for several prompts in one batch");
  command.AddTexts("--prompt", flags->prompts, "text, for byte vocabularies");
  command.AddText("--prompt-file", flags->prompt_file, "a file with the text");
  command.AddNumber("--max-new-tokens", flags->max_new_tokens, {0, kMaxInt32},
                    "tokens to generate at most; 32, or as many as the model has positions for");
  command.AddFlag("--ignore-end", flags->ignore_end,
                  "go on after the end-of-sequence tokens that config.json, "
                  "generation_config.json or genai_config.json name");
  command.AddFlag("--require-paged", flags->require_paged,
                  "a graph that cannot be paged is an error; otherwise it runs as exported");
  command.AddText("--stop", flags->stop, "stop after one of these bytes (byte vocabularies)");
  AddCacheFlags(command, flags->cache);
  command.AddNumber(
      "--block-size", flags->engine.block_size, {1, kMaxBlockSize},
      "tokens a block of the cache; a model that is paged already keeps its own [16]");
  command
      .AddNumber("--max-tokens-per-step", flags->engine.max_tokens_per_step, {1, kMaxInt32},
                 "token budget of a step; longer prompts are prefilled in chunks")
      .ShowsDefault();
  command
      .AddNumber("--max-sequences", flags->engine.max_sequences, {1, kMaxInt32},
                 "sequences that run at once")
      .ShowsDefault();
  command
      .AddNumber("--cache-tokens", flags->engine.cache_tokens, {0, kMaxInt32},
                 "tokens that the cache holds in all; 0 for what the prompts need")
      .ShowsDefault();
  command.AddFlag("--warm-up", flags->warm_up,
                  "prime memory and tables first, so that the first step costs what later ones do");
  command.AddFlag("--logit-error", flags->logit_error,
                  "also run with an unquantised cache and the weights of the file, and tell the "
                  "largest difference of logits");
  command.AddFlag("--json", flags->json, "one JSON object");
  AddSessionFlags(command, flags->session);
  AddLoadFlags(command, flags->session);
  AddProfileFlags(command, flags->profiling);
}

}  // namespace pagefuse::tools
