// SPDX-License-Identifier: Apache-2.0
#include "decoder_case.h"

#include <algorithm>

#include "absl/strings/str_split.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text.h"

namespace pagefuse::fuzz {
namespace {

constexpr const char* kRoleNames[] = {"ids",  "mask",  "positions",   "types",
                                      "past", "scale", "token_float", "mask4"};

absl::StatusOr<FeedRole> ParseRole(const std::string& name) {
  const auto* found = std::find(std::begin(kRoleNames), std::end(kRoleNames), name);
  if (found != std::end(kRoleNames)) return static_cast<FeedRole>(found - std::begin(kRoleNames));
  return absl::InvalidArgumentError(StrCat("there is no feed role \"", name, "\""));
}

absl::Status ReadComment(absl::string_view line, DecoderCase& result) {
  const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
  if (words.size() == 4 && words[1] == "feed") {
    PF_ASSIGN_OR_RETURN(result.feeds[words[2]], ParseRole(words[3]));
  } else if (words.size() == 4 && words[1] == "present") {
    result.presents[words[2]] = words[3];
  } else if (words.size() == 3 && words[1] == "logits") {
    result.logits = words[2];
  }
  result.padding |= line == "# padding";
  result.any_positions |= line == "# any positions";
  result.pageable |= line == "# pageable";
  result.paged |= line == "# paged";
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DecoderCase> ParseDecoderCase(std::string_view text) {
  DecoderCase result;
  for (const absl::string_view line : absl::StrSplit(AbslView(text), '\n')) {
    if (line.empty() || line[0] != '#') break;
    PF_RETURN_IF_ERROR(ReadComment(line, result));
  }
  PF_ASSIGN_OR_RETURN(result.model, ParseModel(text));
  for (const Value* input : result.model.graph->inputs()) {
    if (input->initializer() || result.feeds.contains(input->name())) continue;
    return absl::InvalidArgumentError(StrCat("no comment says what \"", input->name(), "\" is"));
  }
  const auto& outputs = result.model.graph->outputs();
  const bool has_logits = std::any_of(outputs.begin(), outputs.end(), [&](const Value* output) {
    return output->name() == result.logits;
  });
  if (has_logits) return result;
  return absl::InvalidArgumentError(StrCat("no output is called \"", result.logits, "\""));
}

DecoderCase Copy(const DecoderCase& decoder) {
  return {.model = decoder.model.Clone(),
          .feeds = decoder.feeds,
          .presents = decoder.presents,
          .logits = decoder.logits,
          .padding = decoder.padding,
          .any_positions = decoder.any_positions,
          .pageable = decoder.pageable,
          .paged = decoder.paged};
}

std::string PrintDecoderCase(const DecoderCase& decoder) {
  std::string text;
  for (const auto& [name, role] : decoder.feeds) {
    StrAppend(&text, "# feed ", name, " ", kRoleNames[static_cast<int>(role)], "\n");
  }
  for (const auto& [past, present] : decoder.presents) {
    StrAppend(&text, "# present ", past, " ", present, "\n");
  }
  StrAppend(&text, "# logits ", decoder.logits, "\n");
  const std::pair<bool, const char*> flags[] = {{decoder.padding, "padding"},
                                                {decoder.any_positions, "any positions"},
                                                {decoder.pageable, "pageable"},
                                                {decoder.paged, "paged"}};
  for (const auto& [set, name] : flags) {
    if (set) StrAppend(&text, "# ", name, "\n");
  }
  return text + PrintModel(decoder.model, {.value_infos = false});
}

}  // namespace pagefuse::fuzz
