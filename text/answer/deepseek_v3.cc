// SPDX-License-Identifier: Apache-2.0
// DeepSeek V3 and R1: a section of calls, each a kind, a name, and its arguments in a fence.
#include "pagefuse/text/answer/marked_call.h"
#include "pagefuse/text/answer/source_words.h"
#include "pagefuse/text/answer/tool_format.h"

namespace pagefuse {
namespace {

constexpr CallPart kDeepSeekV3Parts[] = {
    {CallPart::kMark, "<｜tool▁call▁begin｜>"},
    {CallPart::kWord},
    {CallPart::kMark, "<｜tool▁sep｜>"},
    {CallPart::kName},
    {CallPart::kMark, "```json"},
    {CallPart::kArguments},
    {CallPart::kOptionalMark, "```"},
    {CallPart::kMark, "<｜tool▁call▁end｜>"},
};

bool FitsDeepSeekV3(std::string_view source) {
  return Mentions(source, "<｜tool▁calls▁begin｜>") && Mentions(source, "```json");
}

std::unique_ptr<CallReader> ReadDeepSeekV3(bool begun) {
  return std::make_unique<MarkedCallReader>(std::span(kDeepSeekV3Parts).subspan(begun ? 1 : 0));
}

}  // namespace

const ToolFormat kDeepSeekV3Tools = {
    .name = "deepseek_v3",
    .section_begin = "<｜tool▁calls▁begin｜>",
    .section_end = "<｜tool▁calls▁end｜>",
    .call_begin = "<｜tool▁call▁begin｜>",
    .call_end = "<｜tool▁call▁end｜>",
    .bare_mark = "",
    .text = {.opening = "<｜tool▁calls▁begin｜>",
             .before_name = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
             .before_arguments = "\n```json\n",
             .after_arguments = "\n```<｜tool▁call▁end｜>",
             .separator = "\n",
             .closing = "<｜tool▁calls▁end｜>"},
    .fits = FitsDeepSeekV3,
    .read = ReadDeepSeekV3,
};

}  // namespace pagefuse
