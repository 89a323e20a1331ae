// SPDX-License-Identifier: Apache-2.0
#include "tools/run/chat_loop.h"

#include <algorithm>
#include <array>
#include <iostream>
#include <optional>
#include <stop_token>
#include <thread>

#include "absl/strings/ascii.h"
#include "tools/cli/interrupt.h"
#include "tools/cli/line_editor.h"
#include "tools/run/conversation.h"

#include "pagefuse/base/short_message.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/edit/similar_names.h"

namespace pagefuse::tools {
namespace {

// A conversation is at its end where less than this share of the context is left for an answer. Turns
// are dropped until the larger share is free: what follows a dropped turn is computed again, which
// should not happen at every question.
constexpr int64_t kLeastShare = 16, kFreedShare = 4;

constexpr std::string_view kHelp =
    "/clear        starts anew\n"
    "/undo         takes the last question and its answer back\n"
    "/system TEXT  says what the model is told first; without a text it is told nothing\n"
    "/save FILE    writes the conversation as JSON\n"
    "/load FILE    goes on with a conversation that was saved\n"
    "/help         shows this\n"
    "Ctrl-C ends an answer, Ctrl-D the program. A line that ends with \\ goes on in the next one, and\n"
    "a question that begins with / takes a blank before it.\n";

class ChatLoop {
 public:
  ChatLoop(ChatPartner& partner, std::string_view system)
      : partner_(partner), conversation_(system), lines_(CommandNames()) {}

  absl::Status Run() {
    const InterruptCatcher catcher;
    if (terminal())
      std::cerr << "/help lists the commands; Ctrl-C ends an answer, Ctrl-D the program\n";
    std::string line;
    while (true) {
      const LineEditor::Result result = ReadLine(line);
      const bool interrupted = result == LineEditor::Result::kInterrupted;
      if (result == LineEditor::Result::kEnd || (interrupted && !terminal())) break;
      if (interrupted || line.empty()) continue;
      const absl::Status status = line.starts_with('/') ? Obey(line) : Turn(line);
      if (status.ok()) continue;
      // What is wrong with one question is told; the conversation goes on without it. A pipe ends.
      if (!terminal()) return status;
      Tell(ShortMessage(StdView(status.message())));
    }
    return absl::OkStatus();
  }

 private:
  struct ChatCommand {
    std::string_view name, argument;  // an argument in brackets may be missing
    absl::Status (ChatLoop::*run)(const std::string& argument);
  };
  static const std::array<ChatCommand, 6>& Commands() {
    static const std::array<ChatCommand, 6> commands = {{{"/clear", "", &ChatLoop::Clear},
                                                         {"/undo", "", &ChatLoop::Undo},
                                                         {"/system", "[TEXT]", &ChatLoop::System},
                                                         {"/save", "FILE", &ChatLoop::Save},
                                                         {"/load", "FILE", &ChatLoop::Load},
                                                         {"/help", "", &ChatLoop::Help}}};
    return commands;
  }
  static std::vector<std::string> CommandNames() {
    std::vector<std::string> names;
    for (const ChatCommand& command : Commands()) names.emplace_back(command.name);
    return names;
  }

  LineEditor::Result ReadLine(std::string& line) {
    std::jthread reads;
    if (terminal()) {
      reads = std::jthread([this](const std::stop_token& stop) { partner_.Idle(stop); });
    }
    return lines_.Read(line);
  }

  bool terminal() const { return lines_.terminal(); }
  static void Tell(std::string_view text) { std::cerr << "pagefuse: " << text << "\n"; }

  absl::Status Obey(const std::string& line) {
    const size_t blank = std::min(line.find_first_of(" \t"), line.size());
    const std::string name = line.substr(0, blank);
    const std::string argument(StdView(absl::StripAsciiWhitespace(line.c_str() + blank)));
    for (const ChatCommand& command : Commands()) {
      if (command.name != name) continue;
      const bool needs = !command.argument.empty() && !command.argument.starts_with('[');
      if (needs ? argument.empty() : (command.argument.empty() && !argument.empty())) {
        return absl::InvalidArgumentError(StrCat(name, ": expected ",
                                                 needs ? command.argument : "nothing behind it",
                                                 ", got \"", argument, "\""));
      }
      return (this->*command.run)(argument);
    }
    return absl::InvalidArgumentError(StrCat("unknown command \"", name, "\"",
                                             SimilarNames(name, CommandNames()),
                                             "; /help lists all of them"));
  }

  absl::Status Clear(const std::string&) {
    conversation_.Clear();
    return absl::OkStatus();
  }
  absl::Status Help(const std::string&) {
    std::cerr << kHelp;
    return absl::OkStatus();
  }
  absl::Status Undo(const std::string&) {
    if (conversation_.turns() == 0) return absl::InvalidArgumentError("there is nothing to undo");
    Tell(StrCat("took back \"", ShortMessage(conversation_.Undo()), "\""));
    return absl::OkStatus();
  }
  absl::Status System(const std::string& text) {
    Conversation changed = conversation_;
    changed.SetSystem(text);
    PF_RETURN_IF_ERROR(Take(std::move(changed)));
    Tell(text.empty() ? "the model is told nothing first" : "the model is told this first");
    return absl::OkStatus();
  }
  absl::Status Save(const std::string& path) {
    PF_RETURN_IF_ERROR(conversation_.Save(path));
    Tell(StrCat("saved ", Turns(conversation_.turns()), " to \"", path, "\""));
    return absl::OkStatus();
  }
  absl::Status Load(const std::string& path) {
    PF_ASSIGN_OR_RETURN(Conversation loaded, Conversation::Load(path));
    PF_RETURN_IF_ERROR(Take(std::move(loaded)));
    Tell(StrCat("loaded ", Turns(conversation_.turns()), " from \"", path, "\""));
    return absl::OkStatus();
  }
  static std::string Turns(int count) { return StrCat(count, count == 1 ? " turn" : " turns"); }

  // Takes the other conversation's place, unless the template refuses what is in it.
  absl::Status Take(Conversation other) {
    Conversation asked = other;
    asked.Ask("?");
    PF_RETURN_IF_ERROR(partner_.Take(asked.messages()).status());
    conversation_ = std::move(other);
    return absl::OkStatus();
  }

  absl::Status Turn(const std::string& question) {
    Conversation asked = conversation_;
    asked.Ask(question);
    PF_RETURN_IF_ERROR(Fit(asked));
    PF_ASSIGN_OR_RETURN(const std::string answer, partner_.Answer());
    asked.Answer(answer);
    conversation_ = std::move(asked);
    return absl::OkStatus();
  }

  // The partner takes the conversation, without its oldest turns where the context has no room for an
  // answer behind all of them.
  absl::Status Fit(Conversation& asked) {
    PF_ASSIGN_OR_RETURN(std::optional<int64_t> tokens, partner_.Take(asked.messages()));
    const std::optional<int64_t> context = partner_.Context();
    const auto has_room = [&](int64_t share) {
      return !context || !tokens ||
             *tokens + std::max(partner_.LeastAnswer(), *context / share) <= *context;
    };
    int dropped = 0;
    if (!has_room(kLeastShare)) {
      while (!has_room(kFreedShare) && asked.DropOldest()) {
        ++dropped;
        PF_ASSIGN_OR_RETURN(tokens, partner_.Take(asked.messages()));
      }
    }
    PF_RETURN_IF_ERROR(partner_.CheckRoom());
    if (dropped > 0) {
      Tell(StrCat("the conversation is at the end of its context of ", *context,
                  " tokens: dropped its oldest ", Turns(dropped)));
    }
    return absl::OkStatus();
  }

  ChatPartner& partner_;
  Conversation conversation_;
  LineEditor lines_;
};

}  // namespace

absl::Status RunChat(ChatPartner& partner, std::string_view system) {
  return ChatLoop(partner, system).Run();
}

}  // namespace pagefuse::tools
