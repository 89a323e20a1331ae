// SPDX-License-Identifier: Apache-2.0
// DeepSeek V3.1: a section of calls, each a name and its arguments.
#include "pagefuse/text/answer/marked_call.h"
#include "pagefuse/text/answer/source_words.h"
#include "pagefuse/text/answer/tool_format.h"

namespace pagefuse {
namespace {

constexpr CallPart kDeepSeekV31Parts[] = {
    {CallPart::kMark, "<｜tool▁call▁begin｜>"}, {CallPart::kName},
    {CallPart::kMark, "<｜tool▁sep｜>"},        {CallPart::kArguments},
    {CallPart::kMark, "<｜tool▁call▁end｜>"},
};

bool FitsDeepSeekV31(std::string_view source) {
  return Mentions(source, "<｜tool▁calls▁begin｜>") && !Mentions(source, "```json");
}

std::unique_ptr<CallReader> ReadDeepSeekV31(bool begun) {
  return std::make_unique<MarkedCallReader>(std::span(kDeepSeekV31Parts).subspan(begun ? 1 : 0));
}

}  // namespace

const ToolFormat kDeepSeekV31Tools = {
    .name = "deepseek_v31",
    .section_begin = "<｜tool▁calls▁begin｜>",
    .section_end = "<｜tool▁calls▁end｜>",
    .call_begin = "<｜tool▁call▁begin｜>",
    .call_end = "<｜tool▁call▁end｜>",
    .bare_mark = "",
    .text = {.opening = "<｜tool▁calls▁begin｜>",
             .before_name = "<｜tool▁call▁begin｜>",
             .before_arguments = "<｜tool▁sep｜>",
             .after_arguments = "<｜tool▁call▁end｜>",
             .separator = "",
             .closing = "<｜tool▁calls▁end｜>"},
    .fits = FitsDeepSeekV31,
    .read = ReadDeepSeekV31,
};

}  // namespace pagefuse
