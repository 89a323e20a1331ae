#include "pagefuse/runtime/model_config.h"

#include <filesystem>
#include <string_view>

#include "nlohmann/json.hpp"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/onnx_io.h"
#include "pagefuse/ir/str_cat.h"

namespace pagefuse {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr const char* kConfig = "config.json";
constexpr const char* kGeneration = "generation_config.json";
constexpr const char* kGenAi = "genai_config.json";

bool Exists(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

bool HasConfig(const fs::path& folder) {
  return Exists(folder / kConfig) || Exists(folder / kGeneration) || Exists(folder / kGenAi);
}

// The object in a file; empty if there is no file.
absl::StatusOr<Json> ReadObject(const fs::path& path) {
  if (!Exists(path)) return Json::object();
  PF_ASSIGN_OR_RETURN(const std::string text, ReadFile(path.string()));
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_object()) return json;
  return absl::InvalidArgumentError(
      StrCat("\"", path.string(), "\": expected a JSON object, got ",
             json.is_discarded() ? std::string("text that is no JSON") : json.type_name()));
}

// A member of `object`; null where there is none, or where there is no object.
const Json& Member(const Json& object, const char* name) {
  static const Json kNull;
  const auto found = object.is_object() ? object.find(name) : object.end();
  return found == object.end() ? kNull : *found;
}

absl::StatusOr<std::vector<int64_t>> Tokens(const fs::path& path, const Json& object,
                                            const char* name) {
  const Json& value = Member(object, name);
  std::vector<int64_t> tokens;
  const Json list = value.is_null() ? Json::array() : value.is_array() ? value : Json{value};
  for (const Json& item : list) {
    if (!item.is_number_integer() || item.get<int64_t>() < 0) {
      return absl::InvalidArgumentError(
          StrCat("\"", path.string(), "\": ", name, ": expected token ids, got ", item.dump()));
    }
    tokens.push_back(item.get<int64_t>());
  }
  return tokens;
}

// The first file that names tokens decides.
absl::Status TakeTokens(const fs::path& path, const Json& object, ModelConfig& config) {
  PF_ASSIGN_OR_RETURN(const auto begin, Tokens(path, object, "bos_token_id"));
  PF_ASSIGN_OR_RETURN(const auto end, Tokens(path, object, "eos_token_id"));
  if (!config.begin_token && !begin.empty()) config.begin_token = begin[0];
  if (config.end_tokens.empty()) config.end_tokens = end;
  return absl::OkStatus();
}

absl::Status TakeLimit(const fs::path& path, const Json& object, const char* name,
                       ModelConfig& config) {
  const Json& value = Member(object, name);
  if (value.is_null()) return absl::OkStatus();
  if (!value.is_number_integer() || value.get<int64_t>() <= 0) {
    return absl::InvalidArgumentError(StrCat("\"", path.string(), "\": ", name,
                                             ": expected a positive number, got ", value.dump()));
  }
  const int64_t limit = value.get<int64_t>();
  if (config.max_positions && *config.max_positions <= limit) return absl::OkStatus();
  config.max_positions = limit;
  config.max_positions_file = StrCat(path.string(), ", ", name);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& model_path) {
  std::error_code ignored;
  fs::path folder = fs::path(model_path).parent_path();
  if (!HasConfig(folder))
    folder = fs::absolute(fs::path(model_path), ignored).parent_path().parent_path();
  ModelConfig config;
  PF_ASSIGN_OR_RETURN(const Json generation, ReadObject(folder / kGeneration));
  PF_ASSIGN_OR_RETURN(const Json genai, ReadObject(folder / kGenAi));
  PF_ASSIGN_OR_RETURN(const Json model, ReadObject(folder / kConfig));
  PF_RETURN_IF_ERROR(TakeTokens(folder / kGeneration, generation, config));
  PF_RETURN_IF_ERROR(TakeTokens(folder / kGenAi, Member(genai, "model"), config));
  PF_RETURN_IF_ERROR(TakeTokens(folder / kConfig, model, config));
  PF_RETURN_IF_ERROR(TakeLimit(folder / kGenAi, Member(genai, "model"), "context_length", config));
  // Models of several parts keep what concerns text apart.
  for (const Json* object : {&model, &Member(model, "text_config")}) {
    PF_RETURN_IF_ERROR(TakeTokens(folder / kConfig, *object, config));
    PF_RETURN_IF_ERROR(TakeLimit(folder / kConfig, *object, "max_position_embeddings", config));
  }
  return config;
}

}  // namespace pagefuse
