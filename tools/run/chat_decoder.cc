// SPDX-License-Identifier: Apache-2.0
// A conversation with the decoder of this process, over one cache.
#include <algorithm>
#include <ctime>
#include <iostream>
#include <utility>

#include "tools/cli/interrupt.h"
#include "tools/run/chat_loop.h"
#include "tools/run/conversation.h"
#include "tools/run/generate.h"

#include "pagefuse/base/status_macros.h"

namespace pagefuse::tools {
namespace {

absl::StatusOr<std::vector<int64_t>> EncodeMessages(const GenerateSetup& setup,
                                                    const nlohmann::ordered_json& messages) {
  return setup.texts->EncodeChat({{"messages", messages}, {"add_generation_prompt", true}},
                                 std::time(nullptr));
}

// InvalidArgument where the context has no room for an answer behind these tokens.
absl::StatusOr<Request> ChatRequestOf(const GenerateFlags& flags, const GenerateSetup& setup,
                                      std::vector<int64_t> prompt) {
  const size_t length = prompt.size();
  Request request = MakeRequest(flags, setup, std::move(prompt));
  PF_ASSIGN_OR_RETURN(request.max_new_tokens,
                      NewTokens(setup.folder.config, length, flags.max_new_tokens, kUsualAnswer));
  PF_RETURN_IF_ERROR(FitIntoCache(flags, request));
  return request;
}

class DecoderPartner final : public ChatPartner {
 public:
  DecoderPartner(const GenerateFlags& flags, const GenerateSetup& setup, Decoder& decoder,
                 PrefillProgress& progress)
      : flags_(flags), setup_(setup), decoder_(decoder), progress_(progress) {}

  absl::StatusOr<std::optional<int64_t>> Take(const nlohmann::ordered_json& messages) override {
    PF_ASSIGN_OR_RETURN(prompt_, EncodeMessages(setup_, messages));
    return static_cast<int64_t>(prompt_.size());
  }

  std::optional<int64_t> Context() const override {
    std::optional<int64_t> context = setup_.folder.config.max_positions;
    // The last token is never read again, and takes no room.
    if (const int64_t capacity = flags_.engine.cache_tokens; capacity > 0) {
      context = std::min(context.value_or(capacity + 1), capacity + 1);
    }
    return context;
  }
  int64_t LeastAnswer() const override { return flags_.max_new_tokens.value_or(1); }

  absl::Status CheckRoom() override { return ChatRequestOf(flags_, setup_, prompt_).status(); }

  absl::StatusOr<std::string> Answer() override {
    PF_ASSIGN_OR_RETURN(const Request request, ChatRequestOf(flags_, setup_, prompt_));
    TellSecondBegin(setup_, request.prompt);
    Answers answers(1, setup_.tokenizer, flags_.stops, Answers::Output::kText);
    progress_.Begin(request.prompt.size());
    const auto made = decoder_.Generate({request}, [&](const NewToken& token) {
      progress_.End();
      const bool goes_on = answers.Take(token);
      return goes_on && !InterruptCatcher::Take();
    });
    progress_.End();
    InterruptCatcher::Take();  // what stopped a step has done its work
    PF_RETURN_IF_ERROR(made.status());
    PF_RETURN_IF_ERROR((*made)[0].error);
    answers.Finish();
    std::cout << (answers.text(0).ends_with('\n') ? "" : "\n") << std::flush;
    return answers.text(0);
  }

  // The last answer is read.
  void Idle(const std::stop_token& stop) override {
    decoder_.Reread([&stop] { return !stop.stop_requested(); });
  }

 private:
  const GenerateFlags& flags_;
  const GenerateSetup& setup_;
  Decoder& decoder_;
  PrefillProgress& progress_;
  std::vector<int64_t> prompt_;
};

}  // namespace

absl::Status CheckChat(const GenerateFlags& flags, const GenerateSetup& setup) {
  if (!setup.texts || !setup.texts->has_chat_template()) {
    return absl::InvalidArgumentError(
        "--chat: expected a folder with tokenizer.json and a chat template (chat_template.jinja, or in "
        "tokenizer_config.json or chat_template.json, or --chat-template)");
  }
  Conversation shortest(flags.system);
  shortest.Ask("?");
  PF_ASSIGN_OR_RETURN(std::vector<int64_t> prompt, EncodeMessages(setup, shortest.messages()));
  return ChatRequestOf(flags, setup, std::move(prompt)).status();
}

absl::Status Chat(const GenerateFlags& flags, const GenerateSetup& setup, Decoder& decoder,
                  PrefillProgress& progress) {
  DecoderPartner partner(flags, setup, decoder, progress);
  PF_RETURN_IF_ERROR(RunChat(partner, flags.system));
  PrintFigures(decoder, GenerateFigures(flags, decoder));
  return absl::OkStatus();
}

}  // namespace pagefuse::tools
