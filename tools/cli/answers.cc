// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/answers.h"

#include <cmath>
#include <iostream>

#include "tools/cli/output.h"

namespace pagefuse::tools {

using Json = nlohmann::ordered_json;

Answers::Answers(size_t completions, std::shared_ptr<const Tokenizer> tokenizer,
                 const std::vector<std::string>& stops, Output output)
    : tokenizer_(std::move(tokenizer)), output_(output) {
  for (size_t i = 0; i < completions; ++i) {
    answers_.push_back({TextStream(tokenizer_), StopMatch(stops), ""});
  }
}

void Answers::Show(const std::string& piece) {
  if (output_ == Output::kText && !piece.empty()) std::cout << piece << std::flush;
}

bool Answers::Take(const NewToken& token) {
  Answer& answer = answers_[token.completion];
  std::string piece;
  if (has_text()) piece = answer.stop.Add(answer.stream.Add(token.token));
  answer.text += piece;
  Show(piece);
  if (output_ == Output::kJson) {
    Json line = {{"completion", token.completion}, {"token", token.token}};
    if (has_text()) line["text"] = piece;
    if (token.logprobs) line["logprobs"] = LogprobsJson(token.token, *token.logprobs);
    std::cout << JsonText(line) << "\n" << std::flush;
  }
  return !answer.stop.stopped();
}

void Answers::Finish() {
  if (!has_text()) return;
  for (size_t i = 0; i < answers_.size(); ++i) {
    Answer& answer = answers_[i];
    std::string rest = answer.stop.Add(answer.stream.Finish());
    rest += answer.stop.Finish();
    answer.text += rest;
    Show(rest);
    if (output_ != Output::kJson || rest.empty()) continue;
    std::cout << JsonText({{"completion", i}, {"text", rest}}) << "\n" << std::flush;
  }
}

Json Answers::TokenJson(int64_t token, double logprob) const {
  Json json = {{"token", token}};
  // JSON has no infinity.
  json["logprob"] = std::isfinite(logprob) ? Json(logprob) : Json(nullptr);
  if (!has_text()) return json;
  const std::string bytes = tokenizer_->Bytes(token);
  json["text"] = ReplaceBrokenUtf8(bytes);
  json["bytes"] = Json::array();
  for (unsigned char byte : bytes) json["bytes"].push_back(byte);
  return json;
}

Json Answers::LogprobsJson(int64_t token, const TokenLogprobs& logprobs) const {
  Json json = TokenJson(token, logprobs.logprob);
  json["top"] = Json::array();
  for (const auto& [other, logprob] : logprobs.top)
    json["top"].push_back(TokenJson(other, logprob));
  return json;
}

}  // namespace pagefuse::tools
