// SPDX-License-Identifier: Apache-2.0
// pagefuse tokenize and pagefuse detokenize: text to the tokens of a model's folder, and back.
#include <cstdio>
#include <ctime>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>

#include <unistd.h>

#include "tools/cli/output.h"
#include "tools/cli/prompts.h"
#include "tools/cli/subcommand.h"
#include "tools/run/generate.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse::tools {
namespace {

using Json = nlohmann::ordered_json;

struct TokenizeFlags {
  std::string model, file;
  std::optional<std::string> text;
  bool no_special = false, chat = false, ids = false, json = false;
};
struct DetokenizeFlags {
  std::string model, ids;
  bool special = false, json = false;
};

absl::StatusOr<std::shared_ptr<const TextModel>> OpenTexts(const std::string& model) {
  PF_ASSIGN_OR_RETURN(const ModelFolder folder, OpenTokenizerFolder(model));
  return TextModel::Load(TextFilesOf(folder));
}

std::string StandardInput() {
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

absl::StatusOr<std::string> TextOf(const TokenizeFlags& flags) {
  if (flags.text && !flags.file.empty()) {
    return absl::InvalidArgumentError("expected a text or --file, got both");
  }
  if (!flags.file.empty() && flags.file != "-") return ReadFile(flags.file);
  if (flags.text && *flags.text != "-") return *flags.text;
  const bool asked = flags.text || !flags.file.empty();
  if (asked || isatty(STDIN_FILENO) != 1) return StandardInput();
  return absl::InvalidArgumentError("expected a text, --file FILE, or a pipe to read it from");
}

absl::StatusOr<std::vector<int64_t>> Encode(const TextModel& texts, const TokenizeFlags& flags,
                                            const std::string& text) {
  if (flags.chat) {
    const Json messages = Json::array({{{"role", "user"}, {"content", text}}});
    return texts.EncodeChat({{"messages", messages}, {"add_generation_prompt", true}},
                            std::time(nullptr));
  }
  if (flags.no_special) return texts.tokenizer()->Encode(text, {.adds_special = false});
  return texts.EncodePrompt(text);
}

// The bytes of a token, of which those of the first lack what belongs to no text.
std::string BytesOf(const Tokenizer& tokenizer, std::span<const int64_t> ids, size_t place) {
  return tokenizer.IsSpecial(ids[place]) ? std::string() : tokenizer.Bytes(ids[place], place == 0);
}

Json TokensJson(const Tokenizer& tokenizer, std::span<const int64_t> ids) {
  Json tokens = Json::array();
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool special = tokenizer.IsSpecial(ids[i]);
    const std::string bytes = BytesOf(tokenizer, ids, i);
    Json token = {
        {"token", ids[i]},
        {"text", special ? tokenizer.Decode(ids.subspan(i, 1), true) : ReplaceBrokenUtf8(bytes)},
        {"bytes", Json::array()}};
    for (const unsigned char byte : bytes) token["bytes"].push_back(byte);
    if (special) token["special"] = true;
    tokens.push_back(std::move(token));
  }
  return tokens;
}

// A token a line: its id, its text as JSON writes it or its name, and its bytes.
void PrintTokens(const Json& tokens) {
  size_t width = 0;
  const auto piece = [](const Json& token) {
    return token.contains("special") ? token["text"].get<std::string>() : JsonText(token["text"]);
  };
  for (const Json& token : tokens) width = std::max(width, piece(token).size());
  for (const Json& token : tokens) {
    std::string line = piece(token);
    if (!token["bytes"].empty()) line.resize(width + 1, ' ');
    for (const Json& byte : token["bytes"]) {
      char hex[8];
      std::snprintf(hex, sizeof(hex), " %02x", byte.get<int>());
      line += hex;
    }
    std::printf("%8lld  %s\n", static_cast<long long>(token["token"].get<int64_t>()), line.c_str());
  }
  std::fflush(stdout);
}

absl::Status Tokenize(const TokenizeFlags& flags) {
  PF_ASSIGN_OR_RETURN(const auto texts, OpenTexts(flags.model));
  if (flags.chat && !texts->has_chat_template()) {
    return absl::InvalidArgumentError(
        StrCat("--chat: expected a chat template in \"", flags.model, "\", got none"));
  }
  PF_ASSIGN_OR_RETURN(const std::string text, TextOf(flags));
  PF_ASSIGN_OR_RETURN(const std::vector<int64_t> ids, Encode(*texts, flags, text));
  if (flags.ids) {
    std::string line;
    for (const int64_t id : ids) StrAppend(&line, line.empty() ? "" : ",", id);
    std::cout << line << "\n";
    return absl::OkStatus();
  }
  const Json tokens = TokensJson(*texts->tokenizer(), ids);
  if (flags.json) {
    std::cout << JsonText({{"ids", ids}, {"tokens", tokens}}) << "\n";
    return absl::OkStatus();
  }
  PrintTokens(tokens);
  std::cerr << ids.size() << (ids.size() == 1 ? " token\n" : " tokens\n");
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int64_t>> IdsOf(const DetokenizeFlags& flags) {
  const bool piped = flags.ids == "-" || (flags.ids.empty() && isatty(STDIN_FILENO) != 1);
  if (piped) return ParseIds(StandardInput());
  if (!flags.ids.empty()) return ReadIds(flags.ids);
  return absl::InvalidArgumentError("expected ids, @FILE of them, or a pipe to read them from");
}

absl::Status Detokenize(const DetokenizeFlags& flags) {
  PF_ASSIGN_OR_RETURN(const auto texts, OpenTexts(flags.model));
  const Tokenizer& tokenizer = *texts->tokenizer();
  PF_ASSIGN_OR_RETURN(const std::vector<int64_t> ids, IdsOf(flags));
  for (const int64_t id : ids) {
    if (id < tokenizer.size()) continue;
    return absl::InvalidArgumentError(
        StrCat("token ", id, " is outside the vocabulary: expected 0 to ", tokenizer.size() - 1));
  }
  const std::string text = tokenizer.Decode(ids, flags.special);
  if (flags.json) {
    std::cout << JsonText({{"ids", ids}, {"text", text}, {"tokens", TokensJson(tokenizer, ids)}})
              << "\n";
    return absl::OkStatus();
  }
  std::cout << text << "\n";
  return absl::OkStatus();
}

constexpr const char* kModel = "a model's folder, its graph, or tokenizer.json";

}  // namespace

void AddTokenizeCommand(Command app, Outcome& outcome) {
  auto flags = std::make_shared<TokenizeFlags>();
  Command command =
      AddSubcommand(app, outcome, {"tokenize", "tells the tokens of a text: ids, pieces and bytes"},
                    flags, Tokenize);
  command.AddText("model", flags->model, kModel).Required();
  command.AddText("text", flags->text, "the text; standard input if left out, or -");
  command.AddText("--file", flags->file, "a file with the text");
  command.AddFlag("--no-special", flags->no_special,
                  "without the tokens that the tokenizer puts around every text, as <bos>");
  command.AddFlag("--chat", flags->chat, "as a question, by the chat template");
  command.AddFlag("--ids", flags->ids,
                  "ids alone, with commas, as --prompt-ids and detokenize read them");
  command.AddFlag("--json", flags->json, "one JSON object");
}

void AddDetokenizeCommand(Command app, Outcome& outcome) {
  auto flags = std::make_shared<DetokenizeFlags>();
  Command command =
      AddSubcommand(app, outcome, {"detokenize", "tells the text of tokens"}, flags, Detokenize);
  command.AddText("model", flags->model, kModel).Required();
  command.AddText("ids", flags->ids,
                  "token ids with commas, or @FILE of them; standard input if left out, or -");
  command.AddFlag("--special", flags->special, "with the names of special tokens");
  command.AddFlag("--json", flags->json, "one JSON object, with the bytes of each token");
}

}  // namespace pagefuse::tools
