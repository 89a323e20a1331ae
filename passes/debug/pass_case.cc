// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/debug/pass_case.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"

namespace pagefuse {
namespace {

constexpr std::string_view kSeparator = "# ---- ";

std::string Trim(std::string_view text) {
  return std::string(absl::StripAsciiWhitespace(AbslView(text)));
}

// What follows `key` on a comment line, if the line has it.
bool Take(std::string_view line, std::string_view key, std::string& rest) {
  if (!line.starts_with(key)) return false;
  rest = Trim(line.substr(key.size()));
  return true;
}

// `<rule> at "<value>": <reason>`
absl::StatusOr<PassCase::Because> ParseBecause(const std::string& text) {
  const size_t at = text.find(" at \"");
  const size_t end = text.find("\": ", at);
  if (at == std::string::npos || end == std::string::npos) {
    return absl::InvalidArgumentError("expected: # because <rule> at \"<value>\": <reason>");
  }
  return PassCase::Because{text.substr(0, at), text.substr(at + 5, end - at - 5),
                           text.substr(end + 3)};
}

absl::Status ParseHead(PassCase& test) {
  std::string rest;
  for (absl::string_view part : absl::StrSplit(test.head, '\n')) {
    const std::string_view line = StdView(part);
    if (Take(line, "# run:", rest)) {
      const std::vector<std::string> names = ReadNames(rest);
      test.passes.insert(test.passes.end(), names.begin(), names.end());
    } else if (Take(line, "# options:", rest)) {
      PF_RETURN_IF_ERROR(ReadOptions(rest, test.options));
    } else if (Take(line, "# rules:", rest)) {
      PF_ASSIGN_OR_RETURN(test.rules.emplace_back(), ReadRulesBeside(test.path, rest));
    } else if (Take(line, "# plugin:", rest)) {
      test.plugins.push_back(PathBeside(test.path, rest));
    } else if (Take(line, "# numbers: not compared, ", rest)) {
      test.compare_numbers = false;
    }
  }
  if (test.passes.empty()) return absl::InvalidArgumentError("has no line `# run: <pass>`");
  return absl::OkStatus();
}

// The `<...>` before the first graph, comments left out.
std::string HeaderOf(const std::string& text) {
  std::string kept;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!StdView(line).starts_with("#")) StrAppend(&kept, StdView(line), "\n");
  }
  kept = Trim(kept);
  if (!kept.starts_with("<")) return "";
  return kept.substr(0, kept.find('>') + 1);
}

absl::Status ParseTail(PassCase& test, const std::string& line, const std::string& tail) {
  if (Take(line, "# ---- error:", test.error)) {
    test.outcome = PassCase::Outcome::kError;
    return absl::OkStatus();
  }
  if (line == "# ---- after") {
    test.after_has_header = !HeaderOf(tail).empty();
    test.after = test.after_has_header ? tail : HeaderOf(test.head) + "\n" + tail;
    return absl::OkStatus();
  }
  if (line != "# ---- after: unchanged") {
    return absl::InvalidArgumentError(StrCat("does not know \"", line, "\""));
  }
  test.outcome = PassCase::Outcome::kUnchanged;
  std::string rest;
  for (absl::string_view part : absl::StrSplit(tail, '\n')) {
    if (!Take(StdView(part), "# because ", rest)) continue;
    PF_ASSIGN_OR_RETURN(PassCase::Because because, ParseBecause(rest));
    test.because.push_back(std::move(because));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadOptions(const std::string& text, std::map<std::string, std::string>& options) {
  // A comma alone belongs to a value.
  for (absl::string_view part : absl::StrSplit(text, ", ")) {
    const std::string option = Trim(StdView(part));
    const size_t equals = option.find('=');
    if (equals == std::string::npos) return absl::InvalidArgumentError("expected name=value");
    options[option.substr(0, equals)] = option.substr(equals + 1);
  }
  return absl::OkStatus();
}

std::vector<std::string> ReadNames(const std::string& text) {
  std::vector<std::string> names;
  for (absl::string_view name : absl::StrSplit(text, ',')) names.push_back(Trim(StdView(name)));
  return names;
}

std::string PathBeside(const std::string& file, const std::string& name) {
  return (std::filesystem::path(file).parent_path() / name).string();
}

absl::StatusOr<RuleFile> ReadRulesBeside(const std::string& file, const std::string& name) {
  const std::string path = PathBeside(file, name);
  PF_ASSIGN_OR_RETURN(std::string text, ReadFile(path));
  return RuleFile{path, std::move(text)};
}

bool IsPassCase(const std::string& text) {
  return absl::StrContains(text, "\n# ---- ") &&
         (absl::StartsWith(text, "# run:") || absl::StrContains(text, "\n# run:"));
}

absl::StatusOr<PassCase> ReadPassCase(const std::string& path) {
  PF_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const auto error = [&path](const absl::Status& status) {
    return absl::InvalidArgumentError(StrCat(path, ": ", status.message()));
  };
  PassCase test;
  test.path = path;
  size_t separator = text.find(StrCat("\n", kSeparator));
  if (separator == std::string::npos) {
    return error(absl::InvalidArgumentError("has no line that starts with `# ---- `"));
  }
  ++separator;
  test.head = text.substr(0, separator);
  test.before = test.head;
  absl::Status status = ParseHead(test);
  if (!status.ok()) return error(status);
  const size_t end = std::min(text.find('\n', separator), text.size());
  status = ParseTail(test, Trim(std::string_view(text).substr(separator, end - separator)),
                     text.substr(end));
  if (!status.ok()) return error(status);
  return test;
}

}  // namespace pagefuse
