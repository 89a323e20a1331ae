// SPDX-License-Identifier: Apache-2.0
// From the tokens of one answer to its pieces: text, stop strings, reasoning and calls.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pagefuse/runtime/sampler.h"
#include "pagefuse/text/answer/answer_format.h"
#include "pagefuse/text/answer/answer_parser.h"
#include "pagefuse/text/model/stop_match.h"
#include "pagefuse/text/tokenizer/tokenizer.h"

namespace pagefuse::serve {

// What of an answer's text is what. By default all of it is content.
struct AnswerReading {
  AnswerFormat format = {};
  std::vector<int64_t> marks = {};  // special tokens that are part of the format
  bool parses = false;              // a chat's: reasoning and calls are told apart
  bool begins_in_reasoning = false;
  bool parses_calls = false;
  std::vector<std::string> tools = {};  // names that may be called
  bool tells_tokens = false;            // each comes out, also one that has no text
  bool keeps_special = false;           // special tokens have their text, if they are content
};

struct CallDelta {
  int64_t index = 0;    // of the answer's calls
  bool begins = false;  // with the name
  std::string name = {};
  std::string arguments = {};  // JSON, as far as it came
};

// A token with its logprobs.
struct TokenDelta {
  int64_t token = 0;
  std::string bytes = {};
  std::optional<TokenLogprobs> logprobs = {};
};

struct AnswerDelta {
  int64_t sample = 0;
  std::string content, reasoning;
  std::vector<CallDelta> calls;
  std::vector<TokenDelta> tokens;  // that made it, if they or their logprobs are asked for
  bool empty() const { return content.empty() && reasoning.empty() && calls.empty(); }
};

// Of one sample. Not thread-safe.
class AnswerText {
 public:
  // `tokenizer` may be null: then there is no text.
  AnswerText(std::shared_ptr<const Tokenizer> tokenizer, const AnswerReading& reading,
             std::vector<std::string> stops);

  // What a token adds; `ends`: it is one that ends the answer, and has no text.
  AnswerDelta Add(int64_t token, const TokenLogprobs* logprobs, bool ends);
  // What was held back.
  AnswerDelta Finish();

  bool stopped() const { return stops_.stopped(); }
  std::string_view stop() const { return stops_.stop(); }
  bool in_reasoning() const { return reasoning_; }
  int64_t calls() const;

 private:
  std::string TextOf(int64_t token);
  void Split(const std::string& text, bool end, AnswerDelta& delta);
  void Take(const AnswerPiece& piece, AnswerDelta& delta);

  std::shared_ptr<const Tokenizer> tokenizer_;
  bool keeps_special_, tells_tokens_;
  std::vector<int64_t> marks_;  // special tokens that the parser reads
  TextStream text_;
  StopMatch stops_;
  std::optional<AnswerParser> parser_;
  bool reasoning_ = false;
};

}  // namespace pagefuse::serve
