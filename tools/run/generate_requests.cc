// What `pagefuse generate` asks of the decoder: prompts, stops and lengths.
#include <ctime>
#include <iostream>

#include "tools/cli/prompts.h"
#include "tools/run/generate.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"

namespace pagefuse::tools {

absl::StatusOr<int64_t> NewTokens(const GenerateFlags& flags, const ModelConfig& config,
                                  size_t prompt, int64_t usual) {
  const int64_t wanted = flags.max_new_tokens.value_or(usual);
  if (!config.max_positions) return wanted;
  const int64_t room = *config.max_positions - static_cast<int64_t>(prompt);
  if (room >= wanted) return wanted;
  if (room > 0 && !flags.max_new_tokens) return room;
  // Of new tokens that nobody asked for nothing is said.
  const std::string expected =
      flags.max_new_tokens
          ? StrCat(" and ", wanted, " new ones: expected ", *config.max_positions, " at most")
          : StrCat(": expected less than ", *config.max_positions);
  return absl::InvalidArgumentError(StrCat("a prompt of ", prompt, " tokens", expected,
                                           ", the positions of the model (",
                                           config.max_positions_file, ")"));
}

absl::Status FitIntoCache(const GenerateFlags& flags, const Decoder& decoder, Request& request) {
  const std::optional<int64_t> capacity = decoder.capacity();
  if (!capacity || request.max_new_tokens == 0) return absl::OkStatus();
  // The last token is never read again.
  const int64_t room = *capacity + 1 - static_cast<int64_t>(request.prompt.size());
  if (room >= request.max_new_tokens) return absl::OkStatus();
  const bool asked = flags.max_new_tokens || !request.forced.empty();
  if (room > 0 && !asked) {
    request.max_new_tokens = room;
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      StrCat("a prompt of ", request.prompt.size(), " tokens",
             asked ? StrCat(" and ", request.max_new_tokens, " new ones") : "", ": expected ",
             *capacity + (asked ? 1 : 0), " at most, for which the cache of --cache-tokens ",
             flags.engine.cache_tokens, " has room"));
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

absl::StatusOr<std::vector<int64_t>> IdsOf(const char* flag, const std::string& text) {
  auto ids = ReadIds(text);
  if (ids.ok()) return ids;
  return absl::InvalidArgumentError(StrCat(flag, ": ", StdView(ids.status().message())));
}

absl::Status TakeIds(const GenerateFlags& flags, GenerateSetup& setup) {
  for (const std::string& text : flags.prompt_ids) {
    PF_ASSIGN_OR_RETURN(setup.prompt_ids.emplace_back(), IdsOf("--prompt-ids", text));
  }
  if (!flags.forced_ids) return absl::OkStatus();
  PF_ASSIGN_OR_RETURN(setup.forced_ids, IdsOf("--forced-ids", *flags.forced_ids));
  return absl::OkStatus();
}

// A special token has no text that a stop could be found in: it stops by itself, or not at all.
absl::Status TakeStops(const GenerateFlags& flags, GenerateSetup& setup) {
  const Tokenizer& tokenizer = *setup.tokenizer;
  for (const std::string& stop : flags.stops) {
    if (const auto token = tokenizer.Find(stop); token && tokenizer.IsSpecial(*token)) {
      setup.stop_tokens.push_back(*token);
      continue;
    }
    const auto ids = tokenizer.Encode(stop, {.adds_special = false});
    if (!ids.ok()) continue;
    for (const int64_t id : *ids) {
      const std::string name = tokenizer.IsSpecial(id) ? tokenizer.Decode({&id, 1}, true) : "";
      if (name.empty() || stop.find(name) == std::string::npos) continue;
      return absl::InvalidArgumentError(
          StrCat("--stop: expected a text, or a special token alone, "
                 "got the special token \"",
                 name, "\" within \"", stop, "\""));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> PromptTexts(const GenerateFlags& flags) {
  std::vector<std::string> texts = flags.prompts;
  if (!flags.prompt_file.empty()) {
    PF_ASSIGN_OR_RETURN(std::string text, ReadFile(flags.prompt_file));
    texts.push_back(std::move(text));
  }
  return texts;
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
  if (flags.model == "-") {
    setup.folder.graph = flags.model;  // a model from standard input has no files beside it
  } else {
    PF_ASSIGN_OR_RETURN(setup.folder, OpenModelFolder(flags.model, flags.graph));
  }
  for (const std::string& line : setup.folder.config.contradictions) {
    std::cerr << "pagefuse: " << line << "\n";
  }
  PF_ASSIGN_OR_RETURN(setup.sampling, MakeSampling(flags.sampling, setup.folder.config.sampling));
  if (setup.folder.tokenizer.empty()) return setup;
  TextFiles files = TextFilesOf(setup.folder);
  if (!flags.chat_template.empty()) files.chat_template = flags.chat_template;
  PF_ASSIGN_OR_RETURN(setup.texts, TextModel::Load(files));
  setup.tokenizer = setup.texts->tokenizer();
  PF_RETURN_IF_ERROR(TakeStops(flags, setup));
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
  PF_ASSIGN_OR_RETURN(const std::vector<std::string> texts, PromptTexts(flags));
  for (const std::string& text : texts) {
    PF_ASSIGN_OR_RETURN(std::vector<int64_t> ids, EncodeText(flags, setup, text));
    if (ids.empty()) {
      return absl::InvalidArgumentError(
          "--prompt or --prompt-file: expected a text of one token at least, got none");
    }
    TellSecondBegin(setup, ids);
    requests.push_back(MakeRequest(flags, setup, std::move(ids)));
  }
  if (requests.empty()) {
    return absl::InvalidArgumentError("no prompt: use --prompt, --prompt-ids or --chat");
  }
  if (setup.forced_ids) PF_RETURN_IF_ERROR(ForceTokens(*setup.forced_ids, requests));
  for (Request& request : requests) {
    const auto forced = static_cast<int64_t>(request.forced.size());
    PF_ASSIGN_OR_RETURN(request.max_new_tokens,
                        NewTokens(flags, setup.folder.config, request.prompt.size(),
                                  forced > 0 ? forced : kUsualTokens));
  }
  return requests;
}

}  // namespace pagefuse::tools
