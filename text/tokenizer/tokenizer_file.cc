// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/tokenizer/tokenizer_file.h"

#include <simdjson.h>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/text/json_fields.h"

namespace pagefuse {
namespace {

using simdjson::dom::element;

absl::Status Wrong(std::string_view place, std::string_view expected) {
  return absl::InvalidArgumentError(StrCat(place, ": expected ", expected));
}

// False where there is no such member, or null.
bool Has(element object, const char* name, element& value) {
  return object[name].get(value) == simdjson::SUCCESS && !value.is_null();
}

absl::Status ReadVocabulary(element model, TokenizerFile& file) {
  simdjson::dom::object vocabulary;
  if (model["vocab"].get(vocabulary) != simdjson::SUCCESS) {
    return Wrong("model.vocab", "an object of tokens and ids");
  }
  file.vocabulary.reserve(vocabulary.size());
  for (const auto& [token, value] : vocabulary) {
    int64_t id = 0;
    if (value.get(id) != simdjson::SUCCESS) {
      return Wrong(StrCat("model.vocab[\"", token, "\"]"), "an integer");
    }
    file.vocabulary.emplace_back(token, id);
  }
  return absl::OkStatus();
}

// "left right", or ["left", "right"].
bool ReadMerge(element value, Bpe::Merge& merge) {
  std::string_view text;
  if (value.get(text) == simdjson::SUCCESS) {
    const size_t space = text.find(' ');
    if (space == std::string_view::npos) return false;
    merge = {text.substr(0, space), text.substr(space + 1)};
    return merge.second.find(' ') == std::string_view::npos;
  }
  simdjson::dom::array pair;
  return value.get(pair) == simdjson::SUCCESS && pair.size() == 2 &&
         pair.at(0).get(merge.first) == simdjson::SUCCESS &&
         pair.at(1).get(merge.second) == simdjson::SUCCESS;
}

absl::Status ReadMerges(element model, TokenizerFile& file) {
  simdjson::dom::array merges;
  if (model["merges"].get(merges) != simdjson::SUCCESS) return Wrong("model.merges", "a list");
  file.merges.reserve(merges.size());
  for (element value : merges) {
    if (!ReadMerge(value, file.merges.emplace_back())) {
      return Wrong(StrCat("model.merges[", file.merges.size() - 1, "]"), "two tokens");
    }
  }
  return absl::OkStatus();
}

nlohmann::json AsJson(element value) {
  return nlohmann::json::parse(simdjson::minify(value), nullptr, /*allow_exceptions=*/false);
}

absl::Status RefuseText(const JsonFields& model, const char* name) {
  if (!model.Has(name)) return absl::OkStatus();
  PF_ASSIGN_OR_RETURN(const std::string text, model.Text(name));
  return text.empty() ? absl::OkStatus() : model.Wrong(name, "none, as byte pair encodings have");
}

// What stands beside vocabulary and merges.
absl::Status ReadOptions(simdjson::dom::object object, TokenizerFile& file) {
  nlohmann::json rest = nlohmann::json::object();
  for (const auto& [name, value] : object) {
    if (name != "vocab" && name != "merges") rest[std::string(name)] = AsJson(value);
  }
  PF_ASSIGN_OR_RETURN(const JsonFields model, JsonFields::Of(rest, "model"));
  if (model.Has("type")) {
    PF_ASSIGN_OR_RETURN(const std::string type, model.Text("type"));
    if (type != "BPE") return model.UnknownType("BPE");
  }
  if (model.Has("dropout") && rest["dropout"] != 0) return model.Wrong("dropout", "none");
  PF_RETURN_IF_ERROR(RefuseText(model, "continuing_subword_prefix"));
  PF_RETURN_IF_ERROR(RefuseText(model, "end_of_word_suffix"));
  if (model.Has("unk_token")) {
    PF_ASSIGN_OR_RETURN(file.bpe.unknown, model.Text("unk_token"));
  }
  PF_ASSIGN_OR_RETURN(file.bpe.fuse_unknown, model.Flag("fuse_unk", false));
  PF_ASSIGN_OR_RETURN(file.bpe.byte_fallback, model.Flag("byte_fallback", false));
  PF_ASSIGN_OR_RETURN(file.bpe.ignore_merges, model.Flag("ignore_merges", false));
  return absl::OkStatus();
}

absl::Status ReadAddedToken(element value, std::string place, std::vector<AddedToken>& added) {
  const nlohmann::json json = AsJson(value);
  PF_ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Of(json, std::move(place)));
  AddedToken token;
  PF_ASSIGN_OR_RETURN(token.content, fields.Text("content"));
  PF_ASSIGN_OR_RETURN(token.id, fields.Number("id", -1));
  PF_ASSIGN_OR_RETURN(token.special, fields.Flag("special", false));
  PF_ASSIGN_OR_RETURN(token.normalized, fields.Flag("normalized", !token.special));
  PF_ASSIGN_OR_RETURN(token.single_word, fields.Flag("single_word", false));
  PF_ASSIGN_OR_RETURN(token.left_strip, fields.Flag("lstrip", false));
  PF_ASSIGN_OR_RETURN(token.right_strip, fields.Flag("rstrip", false));
  added.push_back(std::move(token));
  return absl::OkStatus();
}

absl::Status ReadAddedTokens(element root, TokenizerFile& file) {
  element list;
  if (!Has(root, "added_tokens", list)) return absl::OkStatus();
  simdjson::dom::array tokens;
  if (list.get(tokens) != simdjson::SUCCESS) return Wrong("added_tokens", "a list");
  for (element token : tokens) {
    PF_RETURN_IF_ERROR(
        ReadAddedToken(token, StrCat("added_tokens[", file.added.size(), "]"), file.added));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TokenizerFile> ReadTokenizerFile(const std::string& json) {
  auto parser = std::make_shared<simdjson::dom::parser>();
  element root;
  if (const auto error = parser->parse(json).get(root); error != simdjson::SUCCESS) {
    return absl::InvalidArgumentError(StrCat("no JSON: ", simdjson::error_message(error)));
  }
  TokenizerFile file;
  file.texts = parser;
  element model;
  simdjson::dom::object fields;
  if (root["model"].get(model) != simdjson::SUCCESS || model.get(fields) != simdjson::SUCCESS) {
    return Wrong("model", "an object");
  }
  PF_RETURN_IF_ERROR(ReadOptions(fields, file));
  PF_RETURN_IF_ERROR(ReadVocabulary(model, file));
  PF_RETURN_IF_ERROR(ReadMerges(model, file));
  PF_RETURN_IF_ERROR(ReadAddedTokens(root, file));
  const std::pair<const char*, nlohmann::json*> parts[] = {{"normalizer", &file.normalizer},
                                                           {"pre_tokenizer", &file.pre_tokenizer},
                                                           {"post_processor", &file.post_processor},
                                                           {"decoder", &file.decoder}};
  for (const auto& [name, part] : parts) {
    element value;
    if (Has(root, name, value)) *part = AsJson(value);
  }
  return file;
}

}  // namespace pagefuse
