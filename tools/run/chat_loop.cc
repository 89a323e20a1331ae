// pagefuse generate --chat: questions from the input, answers to the output, over one cache.
#include <ctime>
#include <iostream>

#include <unistd.h>

#include "tools/cli/interrupt.h"
#include "tools/cli/progress_line.h"
#include "tools/run/generate.h"

#include "pagefuse/base/short_message.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kUsualAnswer = 1024;
constexpr int64_t kLeastRoom = 4096;  // tokens that the cache is made for; it grows with the text

class ChatLoop {
 public:
  ChatLoop(const GenerateFlags& flags, const GenerateSetup& setup, Decoder& decoder)
      : flags_(flags),
        setup_(setup),
        decoder_(decoder),
        terminal_(isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1) {
    Clear();
  }

  absl::Status Run() {
    const InterruptCatcher catcher;
    if (terminal_) std::cerr << "/clear starts anew, Ctrl-C ends an answer, Ctrl-D the program\n";
    for (std::string line; ReadLine(line);) {
      if (line.empty()) continue;
      if (line == "/clear") {
        Clear();
        continue;
      }
      const absl::Status status = Turn(line);
      if (status.ok()) continue;
      // What is wrong with one question is told; the conversation goes on without it. A pipe ends.
      if (!terminal_) return status;
      std::cerr << "pagefuse: " << ShortMessage(StdView(status.message())) << "\n";
    }
    return absl::OkStatus();
  }

 private:
  void Clear() {
    messages_ = Json::array();
    if (!flags_.system.empty()) Add("system", flags_.system);
  }
  void Add(const char* role, const std::string& content) {
    messages_.push_back({{"role", role}, {"content", content}});
  }

  bool ReadLine(std::string& line) {
    while (true) {
      if (terminal_) std::cerr << "> " << std::flush;
      if (std::getline(std::cin, line)) return true;
      if (!InterruptCatcher::Take()) return false;
      // Ctrl-C at the prompt: what was typed is forgotten.
      std::cin.clear();
      clearerr(stdin);
      std::cerr << "\n";
    }
  }

  absl::Status Turn(const std::string& question) {
    Add("user", question);
    auto answer = Answer();
    if (!answer.ok()) {
      messages_.erase(messages_.size() - 1);
      return answer.status();
    }
    Add("assistant", *answer);
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Answer() {
    PF_ASSIGN_OR_RETURN(
        std::vector<int64_t> prompt,
        setup_.texts->EncodeChat({{"messages", messages_}, {"add_generation_prompt", true}},
                                 std::time(nullptr)));
    const size_t length = prompt.size();
    Request request = MakeRequest(flags_, setup_, std::move(prompt));
    PF_ASSIGN_OR_RETURN(request.max_new_tokens, NewTokens(setup_.folder.config, length,
                                                          flags_.max_new_tokens, kUsualAnswer));
    PF_RETURN_IF_ERROR(FitIntoCache(flags_, decoder_, request));
    TellSecondBegin(setup_, request.prompt);
    Answers answers(1, setup_.tokenizer, flags_.stops, Answers::Output::kText);
    ProgressLine progress;
    progress.Show(StrCat("reading ", length, " tokens"));
    InterruptCatcher::Take();
    bool interrupted = false;
    const auto completion = decoder_.Continue(request, Room(request), [&](const NewToken& token) {
      progress.Clear();
      const bool goes_on = answers.Take(token);
      interrupted = InterruptCatcher::Take();
      return goes_on && !interrupted;
    });
    progress.Clear();
    PF_RETURN_IF_ERROR(completion.status());
    answers.Finish();
    std::cout << (answers.text(0).ends_with('\n') ? "" : "\n") << std::flush;
    return answers.text(0);
  }

  int64_t Room(const Request& request) const {
    const auto length = static_cast<int64_t>(request.prompt.size()) + request.max_new_tokens;
    const int64_t room = std::max(kLeastRoom, 2 * length);
    return std::min(room, setup_.folder.config.max_positions.value_or(room));
  }

  const GenerateFlags& flags_;
  const GenerateSetup& setup_;
  Decoder& decoder_;
  bool terminal_;
  Json messages_;
};

}  // namespace

absl::Status Chat(const GenerateFlags& flags, const GenerateSetup& setup, Decoder& decoder) {
  PF_RETURN_IF_ERROR(ChatLoop(flags, setup, decoder).Run());
  PrintFigures(decoder, GenerateFigures(flags, decoder));
  return absl::OkStatus();
}

}  // namespace pagefuse::tools
