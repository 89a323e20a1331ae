// SPDX-License-Identifier: Apache-2.0
// The model that a server serves: decoder, texts, and what the folder says of both.
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

#include "pagefuse/runtime/decoder.h"
#include "pagefuse/runtime/model_config.h"
#include "pagefuse/serve/grammar_cache.h"
#include "pagefuse/text/answer/answer_format.h"
#include "pagefuse/text/answer/message_shape.h"
#include "pagefuse/text/grammar/token_trie.h"
#include "pagefuse/text/model/text_model.h"

namespace pagefuse::serve {

struct ServedModel {
  std::string name;                        // as requests name it
  std::vector<std::string> other_names;    // that mean it too
  std::shared_ptr<const TextModel> texts;  // null where the folder has no tokenizer
  std::shared_ptr<const Tokenizer>
      tokenizer;               // of bytes where the vocabulary is one; else null without texts
  AnswerFormat format;         // how it reasons and calls tools
  std::vector<int64_t> marks;  // special tokens that are part of it
  MessageShape message_shape;  // what the template reads
  std::shared_ptr<const TokenTrie> trie;  // of the tokenizer
  std::shared_ptr<GrammarCache> grammars = std::make_shared<GrammarCache>();
  ModelConfig config;
  SamplingOptions sampling;  // of requests that say nothing
  std::unique_ptr<Decoder> decoder;
  std::time_t created = 0;
  std::string fingerprint;  // of model, modes and SIMD target: equal ones give equal tokens
  bool batch_invariant = true;

  // What texts and tokenizer say of answers: format, marks, message_shape and trie. `names`: options.
  absl::Status FindFormat(const AnswerFormatNames& names);

  // Tokens of prompt and answer together that fit; nullopt: as many as there is memory for.
  std::optional<int64_t> MaxTokens() const;
  // How many new tokens a prompt of so many may have. BadParam of `param` with the numbers where the prompt has
  // no room, or not with all that are wanted. `usual`: where nothing is wanted, at most; nullopt: what fits.
  absl::StatusOr<int64_t> NewTokensFor(int64_t prompt, std::optional<int64_t> wanted,
                                       std::optional<int64_t> usual,
                                       const std::string& param) const;
  // BadParam of "model" where a request names another one. None is this one.
  absl::Status CheckName(const std::optional<std::string>& name) const;
  absl::StatusOr<std::vector<int64_t>> Encode(const std::string& text,
                                              const std::string& param) const;
};

}  // namespace pagefuse::serve
