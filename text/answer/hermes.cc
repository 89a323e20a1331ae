// SPDX-License-Identifier: Apache-2.0
// Hermes 2 Pro and Qwen 2.5 and 3: <tool_call> around an object of JSON.
#include "pagefuse/text/answer/json_call.h"
#include "pagefuse/text/answer/source_words.h"
#include "pagefuse/text/answer/tool_format.h"

namespace pagefuse {
namespace {

// Others put something else between these marks: Qwen 3 Coder <function=NAME>, GLM <arg_key>.
bool FitsHermes(std::string_view source) {
  return Mentions(source, "<tool_call>") && Mentions(source, "arguments") &&
         !Mentions(source, "<function=") && !Mentions(source, "<arg_key>");
}

std::unique_ptr<CallReader> ReadHermes(bool) {
  return std::make_unique<JsonCallReader>("</tool_call>");
}

}  // namespace

const ToolFormat kHermesTools = {
    .name = "hermes",
    .section_begin = "",
    .section_end = "",
    .call_begin = "<tool_call>",
    .call_end = "</tool_call>",
    .bare_mark = "",
    .text = {.opening = "",
             .before_name = "<tool_call>\n{\"name\": \"",
             .before_arguments = "\", \"arguments\": ",
             .after_arguments = "}\n</tool_call>",
             .separator = "\n",
             .closing = ""},
    .fits = FitsHermes,
    .read = ReadHermes,
};

}  // namespace pagefuse
