// SPDX-License-Identifier: Apache-2.0
// Llama 3.1 to 3.3: the answer is an object of JSON, after <|python_tag|> or not; some write several, with ";" between.
#include "pagefuse/text/answer/json_call.h"
#include "pagefuse/text/answer/source_words.h"
#include "pagefuse/text/answer/tool_format.h"

namespace pagefuse {
namespace {

bool FitsLlama3Json(std::string_view source) {
  return Mentions(source, "<|python_tag|>") || Mentions(source, "\"parameters\": ");
}

std::unique_ptr<CallReader> ReadLlama3Json(bool) { return std::make_unique<JsonCallReader>(""); }

}  // namespace

const ToolFormat kLlama3JsonTools = {
    .name = "llama3_json",
    .section_begin = "",
    .section_end = "",
    .call_begin = "",
    .call_end = "",
    .bare_mark = "<|python_tag|>",
    .text = {.opening = "",
             .before_name = "{\"name\": \"",
             .before_arguments = "\", \"parameters\": ",
             .after_arguments = "}",
             .separator = "; ",
             .closing = ""},
    .fits = FitsLlama3Json,
    .read = ReadLlama3Json,
};

}  // namespace pagefuse
