// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/answer/answer_format.h"

#include <algorithm>
#include <string>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/text/answer/source_words.h"
#include "pagefuse/text/answer/template_trial.h"

namespace pagefuse {
namespace {

bool IsReasoningIn(const ReasoningFormat& format, std::string_view source,
                   const Tokenizer* tokenizer) {
  const auto in_source = [&](std::string_view mark) { return Mentions(source, mark); };
  const auto is_token = [&](std::string_view mark) { return tokenizer->Find(mark).has_value(); };
  return std::ranges::any_of(format.in_template, in_source) ||
         (tokenizer != nullptr && std::ranges::all_of(format.in_tokenizer, is_token));
}

absl::Status NoSuchFormat(std::string_view option, std::string_view known, std::string_view name) {
  return absl::InvalidArgumentError(
      StrCat("--", option, ": expected one of ", known, "none, got \"", name, "\""));
}

absl::StatusOr<const ReasoningFormat*> FindReasoning(std::string_view name, std::string_view source,
                                                     const Tokenizer* tokenizer) {
  const ReasoningFormat* const none = nullptr;
  if (name == "none") return none;
  std::string known;
  for (const ReasoningFormat& format : ReasoningFormats()) {
    if (name.empty() ? IsReasoningIn(format, source, tokenizer) : name == format.name)
      return &format;
    StrAppend(&known, format.name, ", ");
  }
  if (name.empty()) return none;
  return NoSuchFormat("reasoning", known, name);
}

absl::StatusOr<const ToolFormat*> FindTools(std::string_view name, std::string_view source) {
  const ToolFormat* const none = nullptr;
  if (name == "none") return none;
  std::string known;
  for (const ToolFormat* format : ToolFormats()) {
    if (name.empty() ? format->fits(source) : name == format->name) return format;
    StrAppend(&known, format->name, ", ");
  }
  if (name.empty()) return none;
  return NoSuchFormat("tools", known, name);
}

std::string MarksOf(const AnswerFormat& format) {
  std::string marks;
  if (format.reasoning != nullptr) {
    StrAppend(&marks, format.reasoning->opening, "\n", format.reasoning->closing, "\n");
    for (const std::string_view mark : format.reasoning->dropped) StrAppend(&marks, mark, "\n");
  }
  if (format.tools == nullptr) return marks;
  const ToolFormat& tools = *format.tools;
  const CallText& text = tools.text;
  for (const std::string_view mark :
       {tools.section_begin, tools.section_end, tools.call_begin, tools.call_end, tools.bare_mark,
        text.before_name, text.before_arguments, text.after_arguments, text.parameter.before_string,
        text.parameter.after_string}) {
    StrAppend(&marks, mark, "\n");
  }
  return marks;
}

}  // namespace

absl::StatusOr<AnswerFormat> FindAnswerFormat(std::string_view template_source,
                                              const Tokenizer* tokenizer,
                                              const AnswerFormatNames& names) {
  AnswerFormat format;
  format.template_takes_tools = TemplateTrial(template_source).TakesTools();
  PF_ASSIGN_OR_RETURN(format.reasoning, FindReasoning(names.reasoning, template_source, tokenizer));
  const bool may_call = format.template_takes_tools || !names.tools.empty();
  if (!may_call) return format;
  PF_ASSIGN_OR_RETURN(format.tools, FindTools(names.tools, template_source));
  return format;
}

std::vector<int64_t> MarkTokens(const AnswerFormat& format, const Tokenizer& tokenizer) {
  const std::string marks = MarksOf(format);
  std::vector<int64_t> tokens;
  for (int64_t id = 0; id < tokenizer.size(); ++id) {
    if (!tokenizer.IsSpecial(id)) continue;
    const std::string text = tokenizer.Decode({&id, 1}, /*special=*/true);
    if (!text.empty() && Mentions(marks, text)) tokens.push_back(id);
  }
  return tokens;
}

}  // namespace pagefuse
