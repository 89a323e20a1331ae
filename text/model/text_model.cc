// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/model/text_model.h"

#include <algorithm>

#include "pagefuse/base/json_depth.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/status_place.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/text/json_fields.h"

namespace pagefuse {
namespace {

// A token's text: "<bos>", or {"content": "<bos>", ...}. Empty where there is none.
absl::StatusOr<std::string> TokenText(const nlohmann::json& config, const std::string& name) {
  const nlohmann::json value = config.value(name, nlohmann::json());
  if (value.is_null()) return std::string();
  if (value.is_string()) return value.get<std::string>();
  PF_ASSIGN_OR_RETURN(const JsonFields token, JsonFields::Of(value, name));
  return token.Text("content");
}

// The object that a file of JSON holds; an empty one where there is no file.
absl::StatusOr<nlohmann::json> ReadObject(const std::string& path) {
  if (path.empty()) return nlohmann::json::object();
  PF_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  if (IsNestedTooDeeply(text)) {
    return InFile(path, absl::InvalidArgumentError("JSON nested too deeply"));
  }
  nlohmann::json object = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (object.is_object()) return object;
  return InFile(path, absl::InvalidArgumentError("expected a JSON object"));
}

// Tokens in a list, each as TokenText reads it.
absl::StatusOr<nlohmann::ordered_json> TokenTexts(const nlohmann::json& list,
                                                  const std::string& name) {
  nlohmann::ordered_json texts = nlohmann::ordered_json::array();
  for (const nlohmann::json& token : list) {
    PF_ASSIGN_OR_RETURN(std::string text, TokenText({{name, token}}, name));
    if (!text.empty()) texts.push_back(std::move(text));
  }
  return texts;
}

constexpr const char* kTokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                   "pad_token", "cls_token", "mask_token"};
constexpr const char* kMoreTokens = "additional_special_tokens";

// "chat_template": a text, or a list of named ones, of which "default" counts.
absl::StatusOr<std::string> TemplateText(const nlohmann::json& config) {
  const nlohmann::json value = config.value("chat_template", nlohmann::json());
  if (!value.is_array()) {
    PF_ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Of(config, "the file"));
    return fields.Has("chat_template") ? fields.Text("chat_template") : std::string();
  }
  for (const nlohmann::json& item : value) {
    PF_ASSIGN_OR_RETURN(const JsonFields named, JsonFields::Of(item, "chat_template[]"));
    PF_ASSIGN_OR_RETURN(const std::string name, named.Text("name"));
    if (name == "default") return named.Text("template");
  }
  return absl::InvalidArgumentError(
      "chat_template: expected one of the name \"default\", got none");
}

}  // namespace

absl::StatusOr<std::shared_ptr<const TextModel>> TextModel::Load(const TextFiles& files) {
  auto model = std::shared_ptr<TextModel>(new TextModel);
  PF_ASSIGN_OR_RETURN(model->tokenizer_, Tokenizer::Load(files.tokenizer));
  PF_ASSIGN_OR_RETURN(const nlohmann::json config, ReadObject(files.tokenizer_config));
  PF_ASSIGN_OR_RETURN(const nlohmann::json map, ReadObject(files.special_tokens_map));
  PF_RETURN_IF_ERROR(InFile(files.tokenizer_config, model->ReadConfig(config)));
  PF_RETURN_IF_ERROR(InFile(files.special_tokens_map, model->ReadSpecialTokens(map, config)));
  PF_RETURN_IF_ERROR(model->ReadTemplate(files, config));
  return std::shared_ptr<const TextModel>(std::move(model));
}

absl::Status TextModel::ReadConfig(const nlohmann::json& config) {
  PF_RETURN_IF_ERROR(ReadSpecialTokens(config, nlohmann::json::object()));
  // Tokens that only this model has, by name.
  const nlohmann::json extra = config.value("extra_special_tokens", nlohmann::json());
  if (extra.is_object()) {
    for (const auto& [name, token] : extra.items()) {
      PF_ASSIGN_OR_RETURN(const std::string text, TokenText({{name, token}}, name));
      if (!text.empty()) own_[name] = text;
    }
  }
  PF_ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Of(config, "tokenizer_config"));
  PF_ASSIGN_OR_RETURN(begins_, fields.Flag("add_bos_token", false));
  return absl::OkStatus();
}

// Takes the tokens of `map`, but those that `config` has where that is complete: one that lists all
// tokens that were added is newer than the map.
absl::Status TextModel::ReadSpecialTokens(const nlohmann::json& map, const nlohmann::json& config) {
  const bool complete = config.contains("added_tokens_decoder");
  for (const char* name : kTokens) {
    if (complete && config.contains(name)) continue;
    PF_ASSIGN_OR_RETURN(const std::string text, TokenText(map, name));
    if (!text.empty()) own_[name] = text;
  }
  const nlohmann::json more = map.value(kMoreTokens, nlohmann::json());
  if (more.is_null() || (complete && config.contains(kMoreTokens))) return absl::OkStatus();
  if (!more.is_array()) {
    return absl::InvalidArgumentError(
        StrCat(kMoreTokens, ": expected a list, got ", more.type_name()));
  }
  PF_ASSIGN_OR_RETURN(const nlohmann::ordered_json texts, TokenTexts(more, kMoreTokens));
  for (const auto& text : texts) {
    auto& known = own_[kMoreTokens];
    if (std::find(known.begin(), known.end(), text) == known.end()) known.push_back(text);
  }
  return absl::OkStatus();
}

absl::Status TextModel::ReadTemplate(const TextFiles& files, const nlohmann::json& config) {
  std::string source, path = files.chat_template;
  if (!path.empty()) {
    PF_ASSIGN_OR_RETURN(source, ReadFile(path));
  } else {
    path = files.tokenizer_config;
    auto text = TemplateText(config);
    if (text.ok() && text->empty()) {
      path = files.chat_template_json;
      PF_ASSIGN_OR_RETURN(const nlohmann::json json, ReadObject(path));
      text = TemplateText(json);
    }
    PF_RETURN_IF_ERROR(InFile(path, text.status()));
    if (text->empty()) return absl::OkStatus();
    source = *std::move(text);
  }
  auto parsed = ChatTemplate::Parse(source);
  PF_RETURN_IF_ERROR(InFile(StrCat(path, "\", \"chat_template"), parsed.status()));
  chat_template_ = *std::move(parsed);
  chat_template_source_ = std::move(source);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int64_t>> TextModel::EncodePrompt(std::string_view text) const {
  PF_ASSIGN_OR_RETURN(std::vector<int64_t> ids, tokenizer_->Encode(text));
  if (!begins_ || !own_.contains("bos_token")) return ids;
  // Some files leave it to the code around them to put it there.
  const auto begin = tokenizer_->Find(own_["bos_token"].get<std::string>());
  if (begin && (ids.empty() || ids[0] != *begin)) ids.insert(ids.begin(), *begin);
  return ids;
}

std::optional<std::string> TextModel::BeginsTwice(std::span<const int64_t> prompt) const {
  if (prompt.size() < 2 || prompt[0] != prompt[1] || !tokenizer_->IsSpecial(prompt[0])) {
    return std::nullopt;
  }
  const std::string text = tokenizer_->Decode(prompt.first(1), /*special=*/true);
  if (own_.value("bos_token", "") == text) return text;
  const auto around = tokenizer_->Encode("");
  const bool begins = around.ok() && !around->empty() && around->front() == prompt[0];
  return begins ? std::optional(text) : std::nullopt;
}

absl::StatusOr<RenderedChat> TextModel::RenderChat(const nlohmann::ordered_json& given,
                                                   std::time_t now) const {
  if (!chat_template_) {
    return absl::FailedPreconditionError(
        "the model has no chat template: expected chat_template.jinja, or chat_template in "
        "tokenizer_config.json or chat_template.json");
  }
  auto rendered = chat_template_->Render(own_, given, now);
  PF_RETURN_IF_ERROR(AtPlace("chat template", rendered.status()));
  return rendered;
}

absl::StatusOr<std::vector<int64_t>> TextModel::EncodeRendered(const RenderedChat& chat) const {
  // The template has written all special tokens that there are to be.
  return tokenizer_->Encode(chat.text, {.adds_special = false, .plain = chat.user});
}

absl::StatusOr<std::vector<int64_t>> TextModel::EncodeChat(const nlohmann::ordered_json& given,
                                                           std::time_t now) const {
  PF_ASSIGN_OR_RETURN(const RenderedChat rendered, RenderChat(given, now));
  return EncodeRendered(rendered);
}

}  // namespace pagefuse
