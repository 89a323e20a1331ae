// SPDX-License-Identifier: Apache-2.0
// Declares what the parts of `pagefuse generate` share.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tools/cli/answers.h"
#include "tools/cli/cache_flags.h"
#include "tools/cli/command.h"
#include "tools/cli/model_argument.h"
#include "tools/run/profile.h"

#include "pagefuse/base/progress.h"
#include "pagefuse/runtime/decoder.h"
#include "pagefuse/runtime/model_folder.h"
#include "pagefuse/text/model/text_model.h"

namespace pagefuse::tools {

struct SamplingFlags {
  std::optional<double> temperature, top_p, min_p;
  std::optional<double> repetition_penalty, frequency_penalty, presence_penalty;
  std::optional<int64_t> top_k, seed, logprobs;
};
void AddSamplingFlags(Command command, SamplingFlags& flags);
// The model's own way, with what the flags say. InvalidArgument naming the flag.
absl::StatusOr<SamplingOptions> MakeSampling(const SamplingFlags& flags, SamplingOptions sampling);

// Shows how much of the prompts has been read, until all is or the first new token is there.
class PrefillProgress {
 public:
  void Begin(size_t tokens);
  void Add(const EngineStep& step);
  void End() { stage_.reset(); }

 private:
  std::optional<ProgressStage> stage_;
};

struct GenerateFlags {
  ModelFlags model;
  std::vector<std::string> prompt_ids, prompts, stops;
  std::string prompt_file, system, chat_template, check_paging = "once";
  std::optional<std::string> forced_ids;
  std::string logits_out;  // a file
  std::optional<int64_t> max_new_tokens;
  int64_t samples = 1;
  SamplingFlags sampling;
  EngineOptions engine;
  CacheFlags cache;
  SessionFlags session;
  ProfileFlags profiling;
  bool chat = false, json = false, stream = false;
  bool logit_error = false, warm_up = false, require_paged = false, ignore_end = false;
  bool no_shared_prefixes = false, no_reread = false;
  std::string prefix_reuse = "exact", drafts = "auto";
  uint64_t cache_bytes = 0;
  int64_t step_ms = 200;
};

void AddGenerateFlags(Command command, GenerateFlags& flags);
// What the flags ask for: answers, or a conversation (`chat`).
absl::Status RunGenerate(GenerateFlags flags);
// Those of the cache and the engine, and how the graph runs, which the server takes too.
void AddEngineFlags(Command command, GenerateFlags& flags);
// What they say of the engine, into flags.engine. InvalidArgument naming flag, expected and given.
absl::Status ReadEngineFlags(GenerateFlags& flags);

// The model's folder and its texts; the tokenizer is null where ids are all there is.
struct GenerateSetup {
  ModelFolder folder;
  std::shared_ptr<const TextModel> texts;
  std::shared_ptr<const Tokenizer> tokenizer;
  SamplingOptions sampling;
  std::vector<std::string> prompt_texts;           // of --prompt, --prompt-file and a pipe
  std::vector<std::vector<int64_t>> prompt_ids;    // of --prompt-ids
  std::optional<std::vector<int64_t>> forced_ids;  // of --forced-ids
  std::vector<int64_t> stop_tokens;                // special tokens that --stop names
};

// The files of a folder that say something of texts.
TextFiles TextFilesOf(const ModelFolder& folder);
// Reads texts and ids of the flags and of a pipe, and opens the model's folder and its texts, all that is to be had without
// the graph.
absl::StatusOr<GenerateSetup> OpenSetup(const GenerateFlags& flags);
// A vocabulary of 256 tokens without a tokenizer is one of bytes. InvalidArgument where a flag gives
// text for another one.
absl::Status TakeBytes(const GenerateFlags& flags, int64_t vocabulary, GenerateSetup& setup);
// Lines on the error stream say what is not as one would expect. `on_read` is told of the model as it was
// read, before passes; may be null.
absl::StatusOr<std::unique_ptr<Decoder>> LoadDecoder(
    const GenerateFlags& flags, const std::string& graph,
    const std::function<void(const Model&)>& on_read);
// One for each prompt of the flags; text is one of bytes where there is no tokenizer. A prompt for
// which the model has no positions, or --cache-tokens no room, is refused, and alone or with all others
// it is the status.
absl::StatusOr<std::vector<Request>> MakeRequests(const GenerateFlags& flags,
                                                  const GenerateSetup& setup);

// Fewer new tokens where --cache-tokens leaves no room for them, unless a number was asked for; then
// InvalidArgument. What the last block may hold beyond that is known of a graph alone, and not counted.
absl::Status FitIntoCache(const GenerateFlags& flags, Request& request);
// On the error stream that the prompt begins with <bos> twice, if it does.
void TellSecondBegin(const GenerateSetup& setup, std::span<const int64_t> prompt);
// A request for the prompt with what the flags say.
Request MakeRequest(const GenerateFlags& flags, const GenerateSetup& setup,
                    std::vector<int64_t> prompt);

// What is known of a conversation before the graph is read: InvalidArgument where there is no template,
// or no room for the shortest question and its answer.
absl::Status CheckChat(const GenerateFlags& flags, const GenerateSetup& setup);
// Talks over the terminal, or with the lines of a pipe, until the input ends.
absl::Status Chat(const GenerateFlags& flags, const GenerateSetup& setup, Decoder& decoder,
                  PrefillProgress& progress);

// The completions, a list of objects.
nlohmann::ordered_json GenerateResults(const std::vector<Request>& requests,
                                       const std::vector<Completion>& completions,
                                       const Answers& answers);
// What each request took, a list in the order of requests, as OpenAI's API tells it. It stands apart from
// the completions, which are those of a request alone: of tokens that were known there are others
// where other requests came before.
nlohmann::ordered_json GenerateUsage(const std::vector<Request>& requests,
                                     const std::vector<Completion>& completions);
// Speeds, cache and graph.
nlohmann::ordered_json GenerateFigures(const GenerateFlags& flags, const Decoder& decoder);
// The same for people, on the error stream: all with --verbose, else one dim line on a terminal.
void PrintFigures(const Decoder& decoder, const nlohmann::ordered_json& figures);
// Whether that line is printed.
bool PrintsFiguresLine();

}  // namespace pagefuse::tools
