// SPDX-License-Identifier: Apache-2.0
// pagefuse generate: prompts in, text or tokens out, through the fused graph.
#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <optional>

#include "tools/cli/interrupt.h"
#include "tools/cli/output.h"
#include "tools/cli/verbosity.h"
#include "tools/run/generate.h"

#include "pagefuse/base/new_file.h"
#include "pagefuse/base/short_message.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ir/tensor/tensor_of.h"

namespace pagefuse::tools {
namespace {

using Clock = std::chrono::steady_clock;

// The rows of logits by which each new token was chosen, [steps, vocabulary].
absl::Status WriteLogits(const Completion& completion, const std::string& path) {
  std::vector<float> values;
  for (const std::vector<float>& row : completion.logits) {
    values.insert(values.end(), row.begin(), row.end());
  }
  const auto steps = static_cast<int64_t>(completion.logits.size());
  const int64_t vocabulary = steps == 0 ? 0 : static_cast<int64_t>(completion.logits[0].size());
  PF_ASSIGN_OR_RETURN(const Tensor logits, TensorOf<float>({steps, vocabulary}, values));
  return SaveTensor(logits, "logits", path);
}

// Largest difference of logits against an unquantised cache and the weights of the file, fed the
// same tokens.
absl::StatusOr<double> LogitError(Model model, const EngineOptions& options,
                                  std::vector<Request> requests,
                                  const std::vector<Completion>& completions) {
  EngineOptions reference_options = options;
  reference_options.kv_cache = "none";
  reference_options.session.pipeline.options.erase("indexer_cache");
  UseWeights({}, reference_options.session);
  reference_options.on_step = nullptr;
  PF_ASSIGN_OR_RETURN(auto reference, Engine::Create(std::move(model), reference_options));
  for (size_t i = 0; i < requests.size(); ++i) {
    if (requests[i].forced.empty()) requests[i].forced = completions[i].tokens;
  }
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

// Files that cannot be written are told before the work for them is done.
absl::Status CheckOutputs(const GenerateFlags& flags) {
  for (const std::string& path : {flags.logits_out, flags.profiling.trace}) {
    if (!path.empty()) PF_RETURN_IF_ERROR(CheckNewFile(path));
  }
  return absl::OkStatus();
}

absl::Status CheckFlags(const GenerateFlags& flags) {
  const auto refuse = [](const char* what) { return absl::InvalidArgumentError(what); };
  const bool prompts =
      !flags.prompts.empty() || !flags.prompt_ids.empty() || !flags.prompt_file.empty();
  if (flags.chat && prompts)
    return refuse("--chat takes its questions from the input, not from --prompt");
  if (flags.chat && (flags.json || flags.samples > 1 || flags.logit_error)) {
    return refuse("--chat goes with none of --json, --n and --logit-error");
  }
  if (flags.logit_error && flags.samples > 1) return refuse("--logit-error goes with one sample");
  if (flags.chat && (flags.forced_ids || !flags.logits_out.empty())) {
    return refuse("--chat goes with neither --forced-ids nor --logits-out");
  }
  if (flags.forced_ids && flags.max_new_tokens) {
    return refuse("--forced-ids says how many tokens there are, which --max-new-tokens does too");
  }
  constexpr size_t kMaxStops = 16;
  if (flags.stops.size() > kMaxStops) return refuse("--stop: expected 16 texts at most");
  const bool empty_stop =
      std::find(flags.stops.begin(), flags.stops.end(), "") != flags.stops.end();
  if (empty_stop) return refuse("--stop: expected a text, got none");
  if (flags.stream && !flags.json)
    return refuse("--stream: with --json, a line a token; text streams anyway");
  if (flags.sampling.logprobs && !flags.json) return refuse("--logprobs: with --json");
  return absl::OkStatus();
}

// Answers that did not come as they were made.
void PrintAnswers(const GenerateFlags& flags, const Answers& answers,
                  const std::vector<Completion>& completions) {
  // Where there is a text, its tokens are figures, but for who asks in tokens.
  const bool asked = !flags.prompt_ids.empty() && ChosenVerbosity() != Verbosity::kQuiet;
  const bool tells_tokens = asked || ChosenVerbosity() == Verbosity::kVerbose;
  const bool several = completions.size() > 1;
  for (size_t i = 0; i < completions.size(); ++i) {
    if (completions[i].finish == FinishReason::kRefused) continue;
    if (several) std::cout << "[" << i << "] ";
    if (answers.has_text() && several) std::cout << answers.text(i);
    if (answers.has_text() && !answers.text(i).ends_with('\n')) std::cout << "\n";
    if (answers.has_text() && !tells_tokens) continue;
    auto& tokens = answers.has_text() ? std::cerr : std::cout;
    tokens << "tokens: " << JsonText(nlohmann::ordered_json(completions[i].tokens)) << "\n";
  }
}

// With --warm-up as long prompts as will come. A line of figures is measured behind a few tokens, which
// find what is slow but once, as weights that are on disk.
absl::Status WarmUp(const GenerateFlags& flags, Decoder& decoder,
                    const std::vector<Request>& requests) {
  if (flags.warm_up) return decoder.WarmUp(requests);
  if (flags.json || !PrintsFiguresLine()) return absl::OkStatus();
  constexpr size_t kFew = 16;
  Request few = requests.front();
  few.prompt.resize(std::min(few.prompt.size(), kFew));
  few.forced.clear();
  few.samples = 1;
  return decoder.WarmUp({few});
}

// Tells of each request or answer that failed; the last of them is the error of the command.
absl::Status TellFailures(const std::vector<Completion>& completions) {
  absl::Status last;
  for (const Completion& completion : completions) {
    absl::Status error = ErrorOf(completion);
    if (error.ok() || error == last) continue;  // as are the samples of one that is refused
    if (!last.ok()) std::cerr << "pagefuse: " << ShortMessage(StdView(last.message())) << "\n";
    last = std::move(error);
  }
  return last;
}

int64_t NewTokensOf(const std::vector<Completion>& completions) {
  int64_t tokens = 0;
  for (const Completion& completion : completions) {
    tokens += static_cast<int64_t>(completion.tokens.size());
  }
  return tokens;
}

size_t CountAnswers(const std::vector<Request>& requests) {
  size_t count = 0;
  for (const Request& request : requests) count += NumCompletions(request);
  return count;
}

// What is wrong with prompts and lengths is told before the graph is read. None for a conversation.
absl::StatusOr<std::vector<Request>> RequestsOfFlags(const GenerateFlags& flags,
                                                     const GenerateSetup& setup) {
  std::vector<Request> requests;
  if (flags.chat) {
    PF_RETURN_IF_ERROR(CheckChat(flags, setup));
    return requests;
  }
  PF_ASSIGN_OR_RETURN(requests, MakeRequests(flags, setup));
  const size_t count = CountAnswers(requests);
  if (flags.logits_out.empty() || count == 1) return requests;
  return absl::InvalidArgumentError(StrCat("--logits-out: expected one answer, got ", count));
}

absl::Status Complete(const GenerateFlags& flags, const GenerateSetup& setup, Decoder& decoder,
                      const std::vector<Request>& requests, std::optional<Model> kept) {
  const size_t count = CountAnswers(requests);
  const auto output = flags.json
                          ? (flags.stream ? Answers::Output::kJson : Answers::Output::kNothing)
                          : (count == 1 ? Answers::Output::kText : Answers::Output::kNothing);
  for (size_t i = 0; i < requests.size(); ++i) {
    const std::string why = decoder.WhyAsExported(requests[i]);
    if (why.empty()) continue;
    std::cerr << "pagefuse: request " << i << " runs as the graph was exported: " << why << "\n";
  }
  Answers answers(count, setup.tokenizer, flags.stops, output);
  PF_RETURN_IF_ERROR(WarmUp(flags, decoder, requests));
  const auto start = Clock::now();
  std::optional<Clock::time_point> first;
  PF_ASSIGN_OR_RETURN(const std::vector<Completion> completions,
                      decoder.Generate(requests, [&](const NewToken& token) {
                        if (!first) first = Clock::now();
                        return answers.Take(token);
                      }));
  answers.Finish();
  // What was asked of the logits needs all of them.
  if (flags.logit_error || !flags.logits_out.empty()) PF_RETURN_IF_ERROR(FirstError(completions));
  if (!flags.logits_out.empty()) PF_RETURN_IF_ERROR(WriteLogits(completions[0], flags.logits_out));
  nlohmann::ordered_json figures = GenerateFigures(flags, decoder);
  figures["new_tokens"] = NewTokensOf(completions);
  figures["usage"] = GenerateUsage(requests, completions);
  if (first) {
    figures["seconds_to_first_token"] = std::chrono::duration<double>(*first - start).count();
  }
  if (flags.logit_error) {
    PF_ASSIGN_OR_RETURN(figures["max_logit_error"],
                        LogitError(*std::move(kept), flags.engine, requests, completions));
  }
  if (flags.json) {
    const nlohmann::ordered_json results = GenerateResults(requests, completions, answers);
    nlohmann::ordered_json found = {{"completions", results}};
    // Of one answer a reader need not look into the list.
    if (results.size() == 1) found.update(results[0]);
    found.update(figures);
    std::cout << JsonText(JsonResult("generate", {flags.model.path}, found)) << "\n";
    return TellFailures(completions);
  }
  PrintAnswers(flags, answers, completions);
  std::cout << std::flush;
  PrintFigures(decoder, figures);
  return TellFailures(completions);
}

}  // namespace

absl::Status RunGenerate(GenerateFlags flags) {
  PF_RETURN_IF_ERROR(CheckFlags(flags));
  PF_RETURN_IF_ERROR(CheckOutputs(flags));
  PF_RETURN_IF_ERROR(ReadEngineFlags(flags));
  PF_RETURN_IF_ERROR(CheckEngineOptions(flags.engine));
  PF_ASSIGN_OR_RETURN(flags.engine.session, MakeSessionOptions(flags.session));
  PF_RETURN_IF_ERROR(ReadCacheFlags(flags.cache, flags.engine.session.pipeline.options));
  ProfileLog log;
  PrefillProgress progress;
  flags.engine.session.profile = flags.profiling.wanted();
  flags.engine.on_step = [&](const EngineStep& step) {
    progress.Add(step);
    if (flags.profiling.wanted()) {
      log.Add(*step.session, step.decode ? "decode" : "prefill", step.start);
    }
    // Between the pieces of a prompt; what has begun to come ends with its next token.
    return !step.decode && InterruptCatcher::Pending()
               ? absl::CancelledError("stopped before the answer: the question is taken back")
               : absl::OkStatus();
  };
  PF_ASSIGN_OR_RETURN(GenerateSetup setup, OpenSetup(flags));
  PF_ASSIGN_OR_RETURN(std::vector<Request> requests, RequestsOfFlags(flags, setup));
  std::optional<Model> kept;  // what is kept has its weights in memory
  const auto keep = [&](const Model& model) {
    if (flags.logit_error) kept = model.Clone();
  };
  PF_ASSIGN_OR_RETURN(auto decoder, LoadDecoder(flags, setup.folder.graph, keep));
  if (decoder->plain() && flags.logit_error) {
    return absl::InvalidArgumentError(
        "--logit-error compares with an unquantised paged cache, and the graph could not be paged");
  }
  PF_RETURN_IF_ERROR(TakeBytes(flags, decoder->vocabulary(), setup));
  if (flags.chat) {
    PF_RETURN_IF_ERROR(Chat(flags, setup, *decoder, progress));
  } else {
    size_t tokens = 0;
    for (const Request& request : requests) tokens += request.prompt.size();
    progress.Begin(tokens);
    PF_RETURN_IF_ERROR(Complete(flags, setup, *decoder, requests, std::move(kept)));
  }
  return log.Write(flags.profiling);
}

void PrefillProgress::Begin(size_t tokens) {
  stage_.emplace("prefill", static_cast<int64_t>(tokens), "tokens");
}

void PrefillProgress::Add(const EngineStep& step) {
  if (!stage_) return;
  const int64_t done = stage_->done() + (step.decode ? 0 : step.tokens + step.shared_tokens);
  if (step.decode || done >= stage_->total()) return End();
  stage_->Reach(done);
}

void AddGenerateCommand(Command app, Outcome& outcome) {
  auto flags = std::make_shared<GenerateFlags>();
  Command command = app.AddCommand("generate", "generates text or tokens through the fused graph",
                                   [flags, &outcome] { outcome.status = RunGenerate(*flags); });
  AddGenerateFlags(command, *flags);
}

}  // namespace pagefuse::tools
