// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/serve/answer_text.h"

#include <algorithm>
#include <utility>

namespace pagefuse::serve {

AnswerText::AnswerText(std::shared_ptr<const Tokenizer> tokenizer, const AnswerReading& reading,
                       std::vector<std::string> stops)
    : tokenizer_(std::move(tokenizer)),
      keeps_special_(reading.keeps_special),
      tells_tokens_(reading.tells_tokens),
      marks_(reading.marks),
      text_(tokenizer_, /*special=*/true),
      stops_(std::move(stops)),
      reasoning_(reading.begins_in_reasoning) {
  if (!reading.parses) return;
  parser_.emplace(AnswerParserOptions{.format = reading.format,
                                      .begins_in_reasoning = reading.begins_in_reasoning,
                                      .parses_tools = reading.parses_calls,
                                      .tools = reading.tools});
}

void AnswerText::Take(const AnswerPiece& piece, AnswerDelta& delta) {
  switch (piece.kind) {
    case AnswerPiece::kContent:
      delta.content += piece.text;
      break;
    case AnswerPiece::kReasoning:
      delta.reasoning += piece.text;
      break;
    case AnswerPiece::kCallBegin:
      delta.calls.push_back({.index = piece.call, .begins = true, .name = piece.text});
      break;
    case AnswerPiece::kCallArguments:
      if (delta.calls.empty() || delta.calls.back().index != piece.call) {
        delta.calls.push_back({.index = piece.call});
      }
      delta.calls.back().arguments += piece.text;
      break;
    case AnswerPiece::kCallEnd:
      break;
  }
  // Between two marks, so that it tells of the tokens that come next.
  reasoning_ = piece.kind == AnswerPiece::kReasoning;
}

void AnswerText::Split(const std::string& text, bool end, AnswerDelta& delta) {
  if (!parser_) {
    delta.content += text;
    return;
  }
  for (const AnswerPiece& piece : parser_->Add(text)) Take(piece, delta);
  if (!end) return;
  for (const AnswerPiece& piece : parser_->Finish()) Take(piece, delta);
}

int64_t AnswerText::calls() const { return parser_ ? parser_->calls() : 0; }

std::string AnswerText::TextOf(int64_t token) {
  if (!tokenizer_) return "";
  const bool hidden =
      tokenizer_->IsSpecial(token) && !keeps_special_ && std::ranges::count(marks_, token) == 0;
  return hidden ? std::string() : text_.Add(token);
}

AnswerDelta AnswerText::Add(int64_t token, const TokenLogprobs* logprobs, bool ends) {
  AnswerDelta delta;
  if (logprobs != nullptr || tells_tokens_) {
    delta.tokens.push_back({token, tokenizer_ ? tokenizer_->Bytes(token) : ""});
    if (logprobs != nullptr) delta.tokens.back().logprobs = *logprobs;
  }
  if (!ends) Split(stops_.Add(TextOf(token)), /*end=*/false, delta);
  return delta;
}

AnswerDelta AnswerText::Finish() {
  AnswerDelta delta;
  if (!tokenizer_) return delta;
  std::string rest = stops_.Add(text_.Finish());
  if (!stops_.stopped()) rest += stops_.Finish();
  Split(rest, /*end=*/true, delta);
  return delta;
}

}  // namespace pagefuse::serve
