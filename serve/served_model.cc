// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/serve/served_model.h"

#include <algorithm>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/serve/http_error.h"

namespace pagefuse::serve {

absl::Status ServedModel::FindFormat(const AnswerFormatNames& names) {
  const std::string source = texts ? texts->chat_template_source() : std::string();
  PF_ASSIGN_OR_RETURN(format, FindAnswerFormat(source, tokenizer.get(), names));
  if (!source.empty()) message_shape = FindMessageShape(source);
  if (!tokenizer) return absl::OkStatus();
  marks = MarkTokens(format, *tokenizer);
  trie = TokenTrie::Of(*tokenizer, marks);
  return absl::OkStatus();
}

std::optional<int64_t> ServedModel::MaxTokens() const {
  std::optional<int64_t> most;
  const auto bound = [&most](std::optional<int64_t> tokens) {
    if (tokens && (!most || *tokens < *most)) most = tokens;
  };
  bound(config.max_positions);
  if (const Engine* engine = decoder->engine()) {
    bound(engine->max_tokens());
    // The last token is never read again.
    if (const auto capacity = engine->capacity()) bound(*capacity + 1);
  }
  return most;
}

absl::StatusOr<int64_t> ServedModel::NewTokensFor(int64_t prompt, std::optional<int64_t> wanted,
                                                  std::optional<int64_t> usual,
                                                  const std::string& param) const {
  constexpr int64_t kUnbounded = 4096;  // where neither model nor cache has an end
  const std::optional<int64_t> most = MaxTokens();
  const int64_t room = most ? *most - prompt : wanted.value_or(kUnbounded);
  const auto refuse = [&](std::string_view what) {
    const std::string text =
        StrCat("prompt of ", prompt, " tokens", what, ": expected ", most.value_or(0),
               " tokens at most together, which is what model and cache hold");
    return WithCode(WithParam(absl::InvalidArgumentError(text), param), "context_length_exceeded");
  };
  if (room < (wanted == 0 ? 0 : 1)) return refuse(" and at least one new one");
  if (wanted && *wanted > room) return refuse(StrCat(" and ", *wanted, " new ones"));
  return wanted.value_or(usual ? std::min(*usual, room) : room);
}

absl::Status ServedModel::CheckName(const std::optional<std::string>& wanted) const {
  if (!wanted || *wanted == name || std::ranges::count(other_names, *wanted) > 0) {
    return absl::OkStatus();
  }
  return WithCode(
      WithParam(absl::NotFoundError(StrCat("model: expected \"", name,
                                           "\", which is served, got \"", *wanted, "\"")),
                "model"),
      "model_not_found");
}

absl::StatusOr<std::vector<int64_t>> ServedModel::Encode(const std::string& text,
                                                         const std::string& param) const {
  if (!tokenizer) return BadParam(param, "expected token ids: this model has no tokenizer");
  auto ids = texts ? texts->EncodePrompt(text) : tokenizer->Encode(text);
  if (!ids.ok()) return BadParam(param, StdView(ids.status().message()));
  return ids;
}

}  // namespace pagefuse::serve
