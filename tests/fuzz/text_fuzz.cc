// SPDX-License-Identifier: Apache-2.0
// Any bytes given to the text parser end in a Status or in a model that prints to a fixed point.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/text/text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto function = pagefuse::ParseFunction(text);
  if (function.ok()) {
    const std::string printed = pagefuse::PrintFunction(*function);
    const auto again = pagefuse::ParseFunction(printed);
    PF_CHECK(again.ok());
    PF_CHECK(pagefuse::PrintFunction(*again) == printed);
  }
  const auto model = pagefuse::ParseModel(text);
  if (!model.ok()) return 0;
  const std::string printed = pagefuse::PrintModel(*model);
  const auto again = pagefuse::ParseModel(printed);
  PF_CHECK(again.ok());
  PF_CHECK(pagefuse::PrintModel(*again) == printed);
  return 0;
}
