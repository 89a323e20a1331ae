#include "pagefuse/text/model/text_model.h"

#include "pagefuse/base/json_depth.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/text/json_fields.h"

namespace pagefuse {
namespace {

absl::Status InFile(const std::string& path, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), StrCat("\"", path, "\": ", StdView(status.message())));
}

// A token's text: "<bos>", or {"content": "<bos>", ...}. Empty where there is none.
absl::StatusOr<std::string> TokenText(const nlohmann::json& config, const std::string& name) {
  const nlohmann::json value = config.value(name, nlohmann::json());
  if (value.is_null()) return std::string();
  if (value.is_string()) return value.get<std::string>();
  PF_ASSIGN_OR_RETURN(const JsonFields token, JsonFields::Of(value, name));
  return token.Text("content");
}

// "chat_template" of tokenizer_config.json: a text, or a list of named ones, of which "default" counts.
absl::StatusOr<std::string> TemplateText(const nlohmann::json& config) {
  const nlohmann::json value = config.value("chat_template", nlohmann::json());
  if (!value.is_array()) {
    PF_ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Of(config, "tokenizer_config"));
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
  nlohmann::json config = nlohmann::json::object();
  if (!files.tokenizer_config.empty()) {
    PF_ASSIGN_OR_RETURN(const std::string text, ReadFile(files.tokenizer_config));
    if (IsNestedTooDeeply(text)) {
      return InFile(files.tokenizer_config, absl::InvalidArgumentError("JSON nested too deeply"));
    }
    config = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!config.is_object()) {
      return InFile(files.tokenizer_config, absl::InvalidArgumentError("expected a JSON object"));
    }
    PF_RETURN_IF_ERROR(InFile(files.tokenizer_config, model->ReadConfig(config)));
  }
  PF_RETURN_IF_ERROR(model->ReadTemplate(files, config));
  return std::shared_ptr<const TextModel>(std::move(model));
}

absl::Status TextModel::ReadConfig(const nlohmann::json& config) {
  for (const char* name : {"bos_token", "eos_token", "pad_token", "unk_token"}) {
    PF_ASSIGN_OR_RETURN(const std::string text, TokenText(config, name));
    if (!text.empty()) own_[name] = text;
  }
  PF_ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Of(config, "tokenizer_config"));
  PF_ASSIGN_OR_RETURN(begins_, fields.Flag("add_bos_token", false));
  return absl::OkStatus();
}

absl::Status TextModel::ReadTemplate(const TextFiles& files, const nlohmann::json& config) {
  std::string source, path = files.chat_template;
  if (path.empty()) {
    path = files.tokenizer_config;
    auto text = TemplateText(config);
    PF_RETURN_IF_ERROR(InFile(path, text.status()));
    if (text->empty()) return absl::OkStatus();
    source = *std::move(text);
  } else {
    PF_ASSIGN_OR_RETURN(source, ReadFile(path));
  }
  auto parsed = ChatTemplate::Parse(source);
  PF_RETURN_IF_ERROR(InFile(StrCat(path, "\", \"chat_template"), parsed.status()));
  chat_template_ = *std::move(parsed);
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

absl::StatusOr<std::vector<int64_t>> TextModel::EncodeChat(const nlohmann::ordered_json& given,
                                                           std::time_t now) const {
  if (!chat_template_) {
    return absl::FailedPreconditionError(
        "the model has no chat template: expected chat_template.jinja, or chat_template in tokenizer_config.json");
  }
  auto rendered = chat_template_->Render(own_, given, now);
  if (!rendered.ok()) {
    return absl::Status(rendered.status().code(),
                        StrCat("chat template: ", StdView(rendered.status().message())));
  }
  // The template has written all special tokens that there are to be.
  return tokenizer_->Encode(rendered->text, {.adds_special = false, .plain = rendered->user});
}

}  // namespace pagefuse
