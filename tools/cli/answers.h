// SPDX-License-Identifier: Apache-2.0
// Writes tokens as they come: as text, as ids, or as lines of JSON.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"

#include "pagefuse/runtime/request.h"
#include "pagefuse/text/model/stop_match.h"
#include "pagefuse/text/tokenizer/tokenizer.h"

namespace pagefuse::tools {

class Answers {
 public:
  enum class Output {
    kNothing,  // until all is there
    kText,     // of one completion, as it comes
    kJson,     // a line a token
  };
  // `tokenizer` may be null: then there are no texts.
  Answers(size_t completions, std::shared_ptr<const Tokenizer> tokenizer,
          const std::vector<std::string>& stops, Output output);

  // Whether the completion goes on: it ends at a stop string.
  bool Take(const NewToken& token);
  // No token comes any more: what was held back for stops is text, and the bytes of half a character
  // are U+FFFD. As lines of JSON these have no token.
  void Finish();

  bool has_text() const { return tokenizer_ != nullptr; }
  const std::string& text(size_t completion) const { return answers_[completion].text; }
  bool stopped(size_t completion) const { return answers_[completion].stop.stopped(); }
  // "logprobs" of a token: itself and the likeliest, with texts and bytes.
  nlohmann::ordered_json LogprobsJson(int64_t token, const TokenLogprobs& logprobs) const;

 private:
  struct Answer {
    TextStream stream;
    StopMatch stop;
    std::string text;
  };
  void Show(const std::string& piece);
  nlohmann::ordered_json TokenJson(int64_t token, double logprob) const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<Answer> answers_;
  Output output_;
};

}  // namespace pagefuse::tools
