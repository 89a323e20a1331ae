// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/answer/reasoning_format.h"

namespace pagefuse {
namespace {

// gpt-oss. An answer is a row of messages of which each names its channel; "final" is the answer itself, "commentary" tells the user
// what is about to be done.
constexpr std::string_view kHarmonyDropped[] = {"<|start|>assistant", "<|channel|>final<|message|>",
                                                "<|channel|>commentary<|message|>", "<|end|>",
                                                "<|return|>"};
constexpr std::string_view kHarmonyInTemplate[] = {"<|channel|>analysis"};
constexpr std::string_view kHarmonyInTokenizer[] = {"<|channel|>", "<|message|>", "<|end|>"};

constexpr std::string_view kGemma4Marks[] = {"<|channel>", "<channel|>"};

// DeepSeek R1 and V3.1 and later, Qwen 3. Some templates only cut reasoning out, or only begin it.
constexpr std::string_view kThinkMarks[] = {"<think>", "</think>"};

constexpr ReasoningFormat kReasoningFormats[] = {
    {.name = "harmony",
     .opening = "<|channel|>analysis<|message|>",
     .closing = "<|end|>",
     .label = "",
     .repeats = true,
     .dropped = kHarmonyDropped,
     .in_template = kHarmonyInTemplate,
     .in_tokenizer = kHarmonyInTokenizer},
    {.name = "gemma4",
     .opening = "<|channel>",
     .closing = "<channel|>",
     .label = "thought\n",
     .repeats = true,
     .dropped = {},
     .in_template = kGemma4Marks,
     .in_tokenizer = kGemma4Marks},
    {.name = "think",
     .opening = "<think>",
     .closing = "</think>",
     .label = "",
     .repeats = false,
     .dropped = {},
     .in_template = kThinkMarks,
     .in_tokenizer = kThinkMarks},
};

}  // namespace

std::span<const ReasoningFormat> ReasoningFormats() { return kReasoningFormats; }

}  // namespace pagefuse
