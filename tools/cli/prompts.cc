// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/prompts.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/status_place.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"

namespace pagefuse::tools {

namespace {

absl::Status MissingId(const std::string& text) {
  if (text.find(',') == std::string::npos) {
    return absl::InvalidArgumentError("expected token ids with commas, got none");
  }
  return absl::InvalidArgumentError(
      "expected a token id on both sides of each comma, got none on one");
}

}  // namespace

absl::StatusOr<std::vector<int64_t>> ParseIds(const std::string& text) {
  std::vector<int64_t> ids;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    const size_t before = ids.size();
    for (absl::string_view number :
         absl::StrSplit(part, absl::ByAnyChar(" \t\r\n"), absl::SkipEmpty())) {
      if (!absl::SimpleAtoi(number, &ids.emplace_back()) || ids.back() < 0) {
        return absl::InvalidArgumentError(
            StrCat("\"", StdView(number), "\" is no token id; expected numbers with commas"));
      }
    }
    if (ids.size() == before) return MissingId(text);
  }
  return ids;
}

absl::StatusOr<std::vector<int64_t>> ReadIds(const std::string& text) {
  if (!text.starts_with('@')) return ParseIds(text);
  const std::string path = text.substr(1);
  PF_ASSIGN_OR_RETURN(const std::string contents, ReadFile(path));
  absl::StatusOr<std::vector<int64_t>> ids = ParseIds(contents);
  if (ids.ok()) return ids;
  return InFile(path, ids.status());
}

std::vector<int64_t> EncodeBytes(const std::string& text, std::optional<int64_t> begin) {
  std::vector<int64_t> ids;
  if (begin) ids.push_back(*begin);
  for (unsigned char byte : text) ids.push_back(byte);
  return ids;
}

absl::StatusOr<std::vector<std::vector<int64_t>>> ReadPrompts(const std::string& path,
                                                              const ModelConfig& config,
                                                              int64_t vocabulary) {
  PF_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  std::vector<std::vector<int64_t>> prompts;
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    if (line.find_first_not_of(" \t\r") == absl::string_view::npos) continue;
    if (line.find_first_not_of("0123456789, \t\r") == absl::string_view::npos) {
      auto ids = ParseIds(std::string(line));
      PF_RETURN_IF_ERROR(InFile(path, ids.status()));
      prompts.push_back(*std::move(ids));
      continue;
    }
    if (vocabulary != 256) {
      return absl::InvalidArgumentError(StrCat(
          "\"", path,
          "\": expected token ids: text is for byte vocabularies of 256 tokens, and this model has ",
          vocabulary, ", got \"", StdView(line), "\""));
    }
    prompts.push_back(EncodeBytes(std::string(line), config.begin_token));
  }
  if (!prompts.empty()) return prompts;
  return absl::InvalidArgumentError(StrCat("\"", path, "\": expected a prompt a line, got none"));
}

}  // namespace pagefuse::tools
