// SPDX-License-Identifier: Apache-2.0
// What `pagefuse generate` asks of the decoder: prompts, stops and lengths.
#include <algorithm>
#include <ctime>
#include <iostream>
#include <iterator>

#include <unistd.h>

#include "tools/cli/prompts.h"
#include "tools/run/generate.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/text/model/stop_match.h"
#include "pagefuse/text/utf8.h"

namespace pagefuse::tools {

absl::Status FitIntoCache(const GenerateFlags& flags, Request& request) {
  const int64_t capacity = flags.engine.cache_tokens;
  if (capacity == 0 || request.max_new_tokens == 0) return absl::OkStatus();
  // The last token is never read again.
  const int64_t room = capacity + 1 - static_cast<int64_t>(request.prompt.size());
  if (room >= request.max_new_tokens) return absl::OkStatus();
  const bool asked = flags.max_new_tokens || !request.forced.empty();
  if (room > 0 && !asked) {
    request.max_new_tokens = room;
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      StrCat("a prompt of ", request.prompt.size(), " tokens",
             asked ? StrCat(" and ", request.max_new_tokens, " new ones") : "", ": expected ",
             capacity + (asked ? 1 : 0), " at most, for which the cache of --cache-tokens ",
             capacity, " has room"));
}

void TellSecondBegin(const GenerateSetup& setup, std::span<const int64_t> prompt) {
  const auto token = setup.texts ? setup.texts->BeginsTwice(prompt) : std::nullopt;
  if (!token) return;
  std::cerr << "pagefuse: the prompt begins with " << *token
            << " twice: the text has it too, which the tokenizer puts in front of every text\n";
}

Request MakeRequest(const GenerateFlags& flags, const GenerateSetup& setup,
                    std::vector<int64_t> prompt) {
  Request request;
  request.prompt = std::move(prompt);
  request.samples = flags.samples;
  request.sampling = setup.sampling;
  request.keep_logits = flags.logit_error || !flags.logits_out.empty();
  request.stop_tokens = setup.stop_tokens;
  if (!flags.ignore_end) {
    const std::vector<int64_t>& ends = setup.folder.config.end_tokens;
    request.stop_tokens.insert(request.stop_tokens.end(), ends.begin(), ends.end());
  }
  return request;
}

namespace {

constexpr int64_t kUsualTokens = 32;

absl::Status OfFlag(const char* flag, const absl::Status& error) {
  return absl::InvalidArgumentError(StrCat(flag, ": ", StdView(error.message())));
}

absl::StatusOr<std::vector<int64_t>> IdsOf(const char* flag, const std::string& text) {
  auto ids = ReadIds(text);
  if (ids.ok()) return ids;
  return OfFlag(flag, ids.status());
}

absl::Status TakeIds(const GenerateFlags& flags, GenerateSetup& setup) {
  for (const std::string& text : flags.prompt_ids) {
    PF_ASSIGN_OR_RETURN(setup.prompt_ids.emplace_back(), IdsOf("--prompt-ids", text));
  }
  if (!flags.forced_ids) return absl::OkStatus();
  PF_ASSIGN_OR_RETURN(setup.forced_ids, IdsOf("--forced-ids", *flags.forced_ids));
  return absl::OkStatus();
}

absl::StatusOr<std::string> PromptFromStandardInput() {
  std::string text((std::istreambuf_iterator<char>(std::cin)), std::istreambuf_iterator<char>());
  // `echo` and editors end the last line, which is no part of a question.
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

// A prompt that says nothing or is no text is refused before anything is opened.
absl::Status CheckPrompt(const std::string& text, const std::string& source) {
  if (text.empty()) {
    return absl::InvalidArgumentError(StrCat(source, ": expected a text, got none"));
  }
  const std::optional<size_t> broken = FirstBrokenByte(text);
  if (!broken) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat(source, ": expected UTF-8, byte ", *broken, " is not part of a character"));
}

// What is typed on a terminal is a conversation's (--chat), what a pipe has is a prompt.
bool ReadsPipe(const GenerateFlags& flags) {
  const bool given = flags.chat || !flags.prompts.empty() || !flags.prompt_ids.empty() ||
                     !flags.prompt_file.empty();
  return !given && flags.model.path != "-" && isatty(STDIN_FILENO) != 1;
}

absl::Status TakeTexts(const GenerateFlags& flags, GenerateSetup& setup) {
  for (const std::string& text : flags.prompts) {
    PF_RETURN_IF_ERROR(CheckPrompt(text, "--prompt"));
    setup.prompt_texts.push_back(text);
  }
  if (flags.prompt_file == "-" || ReadsPipe(flags)) {
    if (flags.model.path == "-") {
      return absl::InvalidArgumentError(
          "--prompt-file -: standard input has the model, expected one of both there");
    }
    PF_ASSIGN_OR_RETURN(const std::string text, PromptFromStandardInput());
    PF_RETURN_IF_ERROR(CheckPrompt(text, "prompt from standard input"));
    setup.prompt_texts.push_back(text);
  } else if (!flags.prompt_file.empty()) {
    PF_ASSIGN_OR_RETURN(const std::string text, ReadFile(flags.prompt_file));
    PF_RETURN_IF_ERROR(CheckPrompt(text, StrCat("--prompt-file \"", flags.prompt_file, "\"")));
    setup.prompt_texts.push_back(text);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int64_t>> EncodeText(const GenerateFlags& flags,
                                                const GenerateSetup& setup,
                                                const std::string& text) {
  if (!setup.texts) return EncodeBytes(text, setup.folder.config.begin_token);
  if (flags.system.empty()) return setup.texts->EncodePrompt(text);
  const nlohmann::ordered_json messages = {{{"role", "system"}, {"content", flags.system}},
                                           {{"role", "user"}, {"content", text}}};
  return setup.texts->EncodeChat({{"messages", messages}, {"add_generation_prompt", true}},
                                 std::time(nullptr));
}

// The first reason where every request is refused; what is to be done for the others is worth while.
absl::Status RefusalOfAll(const std::vector<Request>& requests) {
  const bool all = std::ranges::none_of(requests, [](const Request& r) { return r.refused.ok(); });
  return all && !requests.empty() ? requests[0].refused : absl::OkStatus();
}

// The one prompt is followed by these tokens, whatever the model prefers.
absl::Status ForceTokens(const std::vector<int64_t>& ids, std::vector<Request>& requests) {
  if (requests.size() != 1) {
    return absl::InvalidArgumentError(
        StrCat("--forced-ids: expected one prompt, got ", requests.size()));
  }
  requests[0].forced = ids;
  requests[0].stop_tokens.clear();
  return absl::OkStatus();
}

}  // namespace

TextFiles TextFilesOf(const ModelFolder& folder) {
  return {.tokenizer = folder.tokenizer,
          .tokenizer_config = folder.tokenizer_config,
          .special_tokens_map = folder.special_tokens_map,
          .chat_template = folder.chat_template,
          .chat_template_json = folder.chat_template_json};
}

absl::StatusOr<GenerateSetup> OpenSetup(const GenerateFlags& flags) {
  GenerateSetup setup;
  PF_RETURN_IF_ERROR(TakeIds(flags, setup));
  PF_RETURN_IF_ERROR(TakeTexts(flags, setup));
  PF_ASSIGN_OR_RETURN(setup.folder, FindModel(flags.model));
  for (const std::string& line : setup.folder.config.contradictions) {
    std::cerr << "pagefuse: " << line << "\n";
  }
  PF_ASSIGN_OR_RETURN(setup.sampling, MakeSampling(flags.sampling, setup.folder.config.sampling));
  if (setup.folder.tokenizer.empty()) return setup;
  TextFiles files = TextFilesOf(setup.folder);
  if (!flags.chat_template.empty()) files.chat_template = flags.chat_template;
  PF_ASSIGN_OR_RETURN(setup.texts, TextModel::Load(files));
  setup.tokenizer = setup.texts->tokenizer();
  auto stop_tokens = StopTokens(*setup.tokenizer, flags.stops);
  if (!stop_tokens.ok()) return OfFlag("--stop", stop_tokens.status());
  setup.stop_tokens = *std::move(stop_tokens);
  return setup;
}

absl::Status TakeBytes(const GenerateFlags& flags, int64_t vocabulary, GenerateSetup& setup) {
  if (setup.tokenizer) return absl::OkStatus();
  if (vocabulary == 256) {
    PF_ASSIGN_OR_RETURN(setup.tokenizer, Tokenizer::OfBytes());
    return absl::OkStatus();
  }
  const bool prompt = !flags.prompts.empty() || !flags.prompt_file.empty();
  if (!prompt && flags.stops.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat(
      prompt ? "--prompt" : "--stop",
      " takes text where there is a tokenizer.json, or for byte vocabularies (256 tokens); this "
      "model has ",
      vocabulary,
      setup.folder.has_tokenizer_model ? " and a tokenizer.model, which is not read" : "",
      prompt ? ": use --prompt-ids" : ""));
}

absl::StatusOr<std::vector<Request>> MakeRequests(const GenerateFlags& flags,
                                                  const GenerateSetup& setup) {
  std::vector<Request> requests;
  for (const std::vector<int64_t>& ids : setup.prompt_ids) {
    requests.push_back(MakeRequest(flags, setup, ids));
  }
  for (const std::string& text : setup.prompt_texts) {
    PF_ASSIGN_OR_RETURN(std::vector<int64_t> ids, EncodeText(flags, setup, text));
    if (ids.empty()) {
      return absl::InvalidArgumentError(
          "--prompt or --prompt-file: expected a text of one token at least, got none");
    }
    TellSecondBegin(setup, ids);
    requests.push_back(MakeRequest(flags, setup, std::move(ids)));
  }
  if (requests.empty()) {
    return absl::InvalidArgumentError(
        "no prompt: use --prompt, --prompt-file, --prompt-ids, a pipe or --chat");
  }
  if (setup.forced_ids) PF_RETURN_IF_ERROR(ForceTokens(*setup.forced_ids, requests));
  for (Request& request : requests) {
    const auto forced = static_cast<int64_t>(request.forced.size());
    const auto count = NewTokens(setup.folder.config, request.prompt.size(), flags.max_new_tokens,
                                 forced > 0 ? forced : kUsualTokens);
    request.refused = count.status();
    if (!count.ok()) continue;
    request.max_new_tokens = *count;
    request.refused = FitIntoCache(flags, request);
  }
  PF_RETURN_IF_ERROR(RefusalOfAll(requests));
  return requests;
}

}  // namespace pagefuse::tools
