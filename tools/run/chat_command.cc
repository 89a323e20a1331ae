// SPDX-License-Identifier: Apache-2.0
// pagefuse chat: a conversation with a model in this process, as `generate --chat` holds it, or with one that a
// server has.
#include <cstdlib>
#include <memory>
#include <string>

#include "tools/cli/subcommand.h"
#include "tools/run/chat_server.h"
#include "tools/run/generate.h"
#include "tools/run/key_file.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse::tools {
namespace {

struct ChatFlags {
  GenerateFlags generate;
  std::string url, key_file;
};

absl::StatusOr<std::string> KeyOf(const ChatFlags& flags) {
  if (!flags.key_file.empty()) {
    PF_ASSIGN_OR_RETURN(const std::vector<std::string> keys, ReadKeys(flags.key_file));
    return keys.front();
  }
  const char* const key = std::getenv("PAGEFUSE_API_KEY");
  return std::string(key == nullptr ? "" : key);
}

absl::Status CheckChatFlags(const ChatFlags& flags) {
  const auto refuse = [](const char* what) { return absl::InvalidArgumentError(what); };
  const GenerateFlags& generate = flags.generate;
  if (flags.url.empty() && generate.model.path.empty()) {
    return refuse("--url: expected the address of a server or the folder of a model, got neither");
  }
  if (flags.url.empty() && !flags.key_file.empty()) {
    return refuse("--api-key-file: a server's, expected --url");
  }
  if (generate.sampling.logprobs) return refuse("--logprobs: expected none in a conversation");
  if (flags.url.empty()) return absl::OkStatus();
  if (!generate.model.path.empty()) {
    return refuse("--url: expected no model beside it, which the server has");
  }
  if (!generate.chat_template.empty() || generate.require_paged || !generate.model.graph.empty()) {
    return refuse(
        "--url: expected none of --chat-template, --require-paged and --graph, which are the server's");
  }
  if (generate.max_new_tokens == 0) {
    return refuse("--max-new-tokens: expected 1 or more with --url");
  }
  return absl::OkStatus();
}

// What `generate` says of its flag --chat.
absl::Status OfModel(const absl::Status& status) {
  constexpr std::string_view kFlag = "--chat: ";
  const std::string_view message = StdView(status.message());
  if (!message.starts_with(kFlag)) return status;
  return absl::Status(status.code(), StrCat("model: ", message.substr(kFlag.size())));
}

absl::Status RunChatCommand(const ChatFlags& given) {
  PF_RETURN_IF_ERROR(CheckChatFlags(given));
  ChatFlags flags = given;
  flags.generate.chat = true;
  if (flags.url.empty()) return OfModel(RunGenerate(flags.generate));
  PF_ASSIGN_OR_RETURN(const std::string key, KeyOf(flags));
  PF_ASSIGN_OR_RETURN(const auto partner, ConnectToServer(flags.url, key, flags.generate));
  return RunChat(*partner, flags.generate.system);
}

void AddPartnerFlags(Command command, ChatFlags& flags) {
  AddModelArgument(command, flags.generate.model).Optional();
  command.AddText(
      "--url", flags.url,
      "a server that has the model, as http://127.0.0.1:8080: pagefuse serve, or another one "
      "of OpenAI's API");
  command.AddText("--api-key-file", flags.key_file,
                  "a file with the key that the server asks for; PAGEFUSE_API_KEY if left out");
}

void AddTalkFlags(Command command, GenerateFlags& flags) {
  command.Group("Answers");
  command.AddText("--system", flags.system, "what the model is told first");
  command.AddNumber("--max-new-tokens", flags.max_new_tokens, {0, kMaxInt32},
                    "tokens of an answer at most; 1024, or as many as there is room for");
  command.AddFlag("--ignore-end", flags.ignore_end, "go on after end-of-sequence tokens");
  command.AddTexts(
      "--stop", flags.stops,
      "text that ends an answer and is not part of it, or the name of a special token; "
      "up to 16 times");
  command.Group("Sampling");
  AddSamplingFlags(command, flags.sampling);
}

}  // namespace

void AddChatCommand(Command app, Outcome& outcome) {
  auto flags = std::make_shared<ChatFlags>();
  Command command = AddSubcommand(
      app, outcome, {"chat", "holds a conversation with a model, here or of a server"}, flags,
      &RunChatCommand);
  AddPartnerFlags(command, *flags);
  AddTalkFlags(command, flags->generate);
  command.Group("A model in this process");
  command.AddText("--chat-template", flags->generate.chat_template,
                  "a file with another chat template");
  command.AddFlag(
      "--require-paged", flags->generate.require_paged,
      "a graph that cannot be paged, or has other logits then, is an error; otherwise it "
      "runs as exported");
  command.Group("Cache");
  AddEngineFlags(command, flags->generate);
  AddSessionFlags(command, flags->generate.session);
  AddLoadFlags(command, flags->generate.session);
  AddProfileFlags(command, flags->generate.profiling);
}

}  // namespace pagefuse::tools
