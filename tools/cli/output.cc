// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/output.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include <unistd.h>

#include "pagefuse/base/str_cat.h"

namespace pagefuse::tools {

std::string JsonText(const nlohmann::ordered_json& json, int indent) {
  return json.dump(indent, ' ', /*ensure_ascii=*/false,
                   nlohmann::ordered_json::error_handler_t::replace);
}

nlohmann::ordered_json JsonResult(const std::string& command,
                                  const std::vector<std::string>& models,
                                  const nlohmann::ordered_json& found) {
  nlohmann::ordered_json json = {
      {"command", command}, {"version", PAGEFUSE_VERSION}, {"models", models}};
  json.update(found);
  return json;
}

bool ErrorsAreOnTerminal() { return isatty(STDERR_FILENO) == 1; }

std::string Dimmed(const std::string& text) {
  const auto set = [](const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr && *value != '\0';
  };
  const char* terminal = std::getenv("TERM");
  const bool shows = terminal != nullptr && std::string_view(terminal) != "dumb";
  if (!ErrorsAreOnTerminal() || !shows || set("NO_COLOR")) return text;
  return StrCat("\033[2m", text, "\033[0m");
}

absl::Status MakeFolder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error && std::filesystem::is_directory(path, error)) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat(
      "cannot make the folder \"", path, "\": ", error ? error.message() : "a file has its name"));
}

}  // namespace pagefuse::tools
