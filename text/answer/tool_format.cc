// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/answer/tool_format.h"

namespace pagefuse {
namespace {

constexpr const ToolFormat* kToolFormats[] = {
    &kDeepSeekV32Tools,   &kDeepSeekV3Tools, &kDeepSeekV31Tools,
    &kFunctionGemmaTools, &kHermesTools,     &kLlama3JsonTools,
};

}  // namespace

std::span<const ToolFormat* const> ToolFormats() { return kToolFormats; }

}  // namespace pagefuse
