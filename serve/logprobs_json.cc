// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/serve/logprobs_json.h"

#include <utility>

namespace pagefuse::serve {
namespace {

Json TokenEntry(const Tokenizer& tokenizer, int64_t token, double logprob) {
  Json bytes = Json::array();
  for (const char byte : tokenizer.Bytes(token)) bytes.push_back(static_cast<unsigned char>(byte));
  return {{"token", tokenizer.Decode({&token, 1}, /*special=*/true)},
          {"logprob", logprob},
          {"bytes", std::move(bytes)}};
}

}  // namespace

Json TokenLogprobsJson(const std::vector<TokenDelta>& tokens, const Tokenizer& tokenizer) {
  Json list = Json::array();
  for (const TokenDelta& token : tokens) {
    if (!token.logprobs) continue;
    Json one = TokenEntry(tokenizer, token.token, token.logprobs->logprob);
    one["top_logprobs"] = Json::array();
    for (const auto& [id, logprob] : token.logprobs->top) {
      one["top_logprobs"].push_back(TokenEntry(tokenizer, id, logprob));
    }
    list.push_back(std::move(one));
  }
  return list;
}

}  // namespace pagefuse::serve
