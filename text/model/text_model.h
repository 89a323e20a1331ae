// SPDX-License-Identifier: Apache-2.0
// Loads what a model's folder says of text: its tokenizer, its chat template, and the tokens that
// both name.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

#include "pagefuse/text/template/chat_template.h"
#include "pagefuse/text/tokenizer/tokenizer.h"

namespace pagefuse {

// Paths; all but the first may be empty. Of several templates the first of chat_template,
// tokenizer_config and chat_template_json counts.
struct TextFiles {
  std::string tokenizer;           // tokenizer.json
  std::string tokenizer_config;    // tokenizer_config.json: special tokens, and a template
  std::string special_tokens_map;  // special_tokens_map.json: special tokens of older folders
  std::string chat_template;       // chat_template.jinja
  std::string chat_template_json;  // chat_template.json: a template in JSON, of processors
};

// Thread-safe.
class TextModel {
 public:
  // Errors name file and key.
  static absl::StatusOr<std::shared_ptr<const TextModel>> Load(const TextFiles& files);

  const std::shared_ptr<const Tokenizer>& tokenizer() const { return tokenizer_; }
  bool has_chat_template() const { return chat_template_ != nullptr; }
  // As the file has it; empty without a template.
  const std::string& chat_template_source() const { return chat_template_source_; }

  // A text as a prompt: with the tokens around it that the files ask for. Names of special tokens in
  // it are those tokens.
  absl::StatusOr<std::vector<int64_t>> EncodePrompt(std::string_view text) const;
  // The token that all texts begin with, where the prompt has it twice: its text has it, too.
  std::optional<std::string> BeginsTwice(std::span<const int64_t> prompt) const;
  // A conversation: `given` has "messages", and what else the template looks at, as "tools" and
  // "documents", which are none where they are not given. FailedPrecondition without a template.
  absl::StatusOr<RenderedChat> RenderChat(const nlohmann::ordered_json& given,
                                          std::time_t now) const;
  // The tokens of a conversation. Names of special tokens in what users wrote are text.
  absl::StatusOr<std::vector<int64_t>> EncodeRendered(const RenderedChat& chat) const;
  // Both.
  absl::StatusOr<std::vector<int64_t>> EncodeChat(const nlohmann::ordered_json& given,
                                                  std::time_t now) const;

 private:
  TextModel() = default;
  absl::Status ReadConfig(const nlohmann::json& config);
  absl::Status ReadSpecialTokens(const nlohmann::json& map, const nlohmann::json& config);
  absl::Status ReadTemplate(const TextFiles& files, const nlohmann::json& config);

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::string chat_template_source_;
  std::shared_ptr<const ChatTemplate> chat_template_;
  nlohmann::ordered_json own_ = nlohmann::ordered_json::object();  // bos_token, ...
  bool begins_ = false;  // every prompt begins with bos_token
};

}  // namespace pagefuse
