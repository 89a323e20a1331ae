// SPDX-License-Identifier: Apache-2.0
// The flags of `pagefuse generate`.
#include <algorithm>
#include <limits>

#include "tools/run/generate.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/status_place.h"
#include "pagefuse/ops/cache/cache_groups.h"

namespace pagefuse::tools {
namespace {

// What is read.
void AddPromptFlags(Command command, GenerateFlags& flags) {
  AddModelArgument(command, flags.model);
  command.AddTexts(
      "--prompt-ids", flags.prompt_ids,
      "token ids with commas, or @FILE of them; several times for several prompts in one batch");
  command.AddTexts(
      "--prompt", flags.prompts,
      "text, for models with a tokenizer.json and byte vocabularies; several times for several in one batch");
  command.AddText(
      "--prompt-file", flags.prompt_file,
      "a file with the text; - for standard input, which is read also where no prompt is "
      "given and it is no terminal");
  command.AddFlag(
      "--chat", flags.chat,
      "a conversation: questions from the terminal or line by line from a pipe, by the chat template");
  command.AddText(
      "--system", flags.system,
      "what the model is told first; with --prompt, that is a question by the chat template");
  command.AddText("--chat-template", flags.chat_template, "a file with another chat template");
}

// What is answered, and where it ends.
void AddAnswerFlags(Command command, GenerateFlags& flags) {
  command.AddNumber("--max-new-tokens", flags.max_new_tokens, {0, kMaxInt32},
                    "tokens to generate at most; 32, or as many as the model has positions for");
  command.AddFlag("--ignore-end", flags.ignore_end,
                  "go on after the end-of-sequence tokens that config.json, "
                  "generation_config.json or genai_config.json name");
  command.AddFlag(
      "--require-paged", flags.require_paged,
      "a graph that cannot be paged, or has other logits then, is an error; otherwise it "
      "runs as exported");
  command.AddTexts(
      "--stop", flags.stops,
      "text that ends an answer and is not part of it, or the name of a special token; up "
      "to 16 times");
  command.Group("Sampling");
  AddSamplingFlags(command, flags.sampling);
  command.Group("Answers");
  command.AddNumber("--n", flags.samples, {1, 16}, "answers to each prompt, which is computed once")
      .ShowsDefault();
  command.AddFlag("--no-shared-prefixes", flags.no_shared_prefixes,
                  "compute all of each prompt, also what it has in common with others");
  command.AddFlag("--warm-up", flags.warm_up,
                  "prime memory and tables first, so that the first step costs what later ones do");
  command.AddFlag("--logit-error", flags.logit_error,
                  "also run with an unquantised cache and the weights of the file, and tell the "
                  "largest difference of logits");
  command.AddText("--forced-ids", flags.forced_ids,
                  "token ids with commas that follow the prompt whatever the model prefers; the "
                  "tokens told are those that it prefers");
  command.AddText("--logits-out", flags.logits_out,
                  "a file for the logits by which the new tokens were chosen, a TensorProto "
                  "float[steps, vocabulary]");
  command.AddFlag("--json", flags.json, "one JSON object");
  command.AddFlag(
      "--stream", flags.stream,
      "with --json: a line for each token before it, and one for text that was held back to the end");
}

}  // namespace

void AddEngineFlags(Command command, GenerateFlags& flags) {
  AddCacheFlags(command, flags.cache);
  AddCheckPagingFlag(command, flags.check_paging);
  command.AddNumber(
      "--block-size", flags.engine.block_size, {1, kMaxBlockSize},
      "tokens a block of the cache; a model that is paged already keeps its own [16]");
  command
      .AddNumber("--max-tokens-per-step", flags.engine.max_tokens_per_step, {4, kMaxInt32},
                 "token budget of a step; longer prompts are prefilled in pieces")
      .ShowsDefault();
  command.AddNumber(
      "--max-sequences", flags.engine.max_sequences, {1, kMaxInt32},
      "sequences that run at once, at most half of the token budget [64, or that half]");
  command
      .AddNumber("--cache-tokens", flags.engine.cache_tokens, {0, kMaxInt32},
                 "tokens that the cache holds in all; 0 for what --cache-bytes holds")
      .ShowsDefault();
  command.AddSize("--cache-bytes", flags.cache_bytes,
                  "memory of the cache, as 4GiB or in bytes; 60 % of what is left beside the "
                  "weights if left out, taken as it is first used");
  command
      .AddText("--prefix-reuse", flags.prefix_reuse,
               "exact, all or off: what texts begin with alike is computed once; all takes also "
               "tokens that were written, whose rows are not bit for bit those of a prompt")
      .ShowsDefault();
  command.AddFlag("--no-reread", flags.no_reread,
                  "in a conversation, do not read an answer while the next question is typed");
  command
      .AddText("--drafts", flags.drafts,
               "auto or off: run guesses of next tokens beside them where a text repeats itself; "
               "the tokens are the same")
      .ShowsDefault();
  command
      .AddNumber(
          "--step-ms", flags.step_ms, {1, kMaxInt32},
          "milliseconds that a step with pieces of prompts may take while others are answered")
      .ShowsDefault();
}

absl::Status ReadEngineFlags(GenerateFlags& flags) {
  const absl::StatusOr<PrefixReuse> reuse = ParsePrefixReuse(flags.prefix_reuse);
  PF_RETURN_IF_ERROR(AtPlace("--prefix-reuse", reuse.status()));
  const absl::StatusOr<bool> drafts = ParseDrafts(flags.drafts);
  PF_RETURN_IF_ERROR(AtPlace("--drafts", drafts.status()));
  const absl::StatusOr<double> step_seconds = StepSecondsOf(flags.step_ms);
  PF_RETURN_IF_ERROR(AtPlace("--step-ms", step_seconds.status()));
  if (flags.cache_bytes > 0 && flags.engine.cache_tokens > 0) {
    return absl::InvalidArgumentError("--cache-bytes: expected none beside --cache-tokens");
  }
  constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
  flags.engine.cache_bytes = static_cast<int64_t>(std::min(flags.cache_bytes, kMost));
  flags.engine.prefix_reuse = flags.no_shared_prefixes ? PrefixReuse::kOff : *reuse;
  flags.engine.rereads = !flags.no_reread;
  flags.engine.drafts = *drafts;
  flags.engine.step_seconds = *step_seconds;
  flags.engine.kv_cache = flags.cache.format;
  return absl::OkStatus();
}

void AddGenerateFlags(Command command, GenerateFlags& flags) {
  command.Group("Prompts");
  AddPromptFlags(command, flags);
  command.Group("Answers");
  AddAnswerFlags(command, flags);
  command.Group("Cache");
  AddEngineFlags(command, flags);
  AddSessionFlags(command, flags.session);
  AddLoadFlags(command, flags.session);
  AddProfileFlags(command, flags.profiling);
}

}  // namespace pagefuse::tools
