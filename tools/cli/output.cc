#include "tools/cli/output.h"

#include <filesystem>
#include <system_error>

#include "pagefuse/base/str_cat.h"

namespace pagefuse::tools {

std::string JsonText(const nlohmann::ordered_json& json, int indent) {
  return json.dump(indent, ' ', /*ensure_ascii=*/false,
                   nlohmann::ordered_json::error_handler_t::replace);
}

absl::Status MakeFolder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error && std::filesystem::is_directory(path, error)) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat(
      "cannot make the folder \"", path, "\": ", error ? error.message() : "a file has its name"));
}

}  // namespace pagefuse::tools
