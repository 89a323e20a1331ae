// SPDX-License-Identifier: Apache-2.0
// Any chat template over any values ends in a Status or in a text within the limits, whose user ranges lie in it: the input is a
// template, a byte 0, and a JSON object.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "nlohmann/json.hpp"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/text/template/chat_template.h"
#include "pagefuse/text/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(bytes.find('\0'), size);
  const auto chat_template = pagefuse::ChatTemplate::Parse(bytes.substr(0, end));
  if (!chat_template.ok()) return 0;
  const std::string_view rest = end < size ? bytes.substr(end + 1) : std::string_view();
  auto given = nlohmann::ordered_json::parse(rest, nullptr, /*allow_exceptions=*/false);
  if (!given.is_object()) {
    given = {{"messages", {{{"role", "user"}, {"content", "text"}}}},
             {"tools", {1, "two", nullptr}}};
  }
  const auto rendered = (*chat_template)->Render({{"bos_token", "<bos>"}}, given, 0);
  if (!rendered.ok()) return 0;
  PF_CHECK(rendered->text.size() <= 8 << 20);
  PF_CHECK(!pagefuse::FirstBrokenByte(rendered->text));
  size_t before = 0;
  for (const pagefuse::TextRange& range : rendered->user) {
    PF_CHECK(range.first >= before && range.first < range.end &&
             range.end <= rendered->text.size());
    before = range.end;
  }
  return 0;
}
