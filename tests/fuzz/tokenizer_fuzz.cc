// SPDX-License-Identifier: Apache-2.0
// Any tokenizer file and any text end in a Status or in ids that decode to UTF-8: the input is a file, a byte 0, and a text.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/text/tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(bytes.find('\0'), size);
  const auto tokenizer = pagefuse::Tokenizer::Parse(std::string(bytes.substr(0, end)));
  if (!tokenizer.ok()) return 0;
  const std::string_view behind = end < size ? bytes.substr(end + 1) : bytes;
  const std::string text = pagefuse::ReplaceBrokenUtf8(behind);
  const auto ids = (*tokenizer)->Encode(text, {.plain = {{0, text.size() / 2}}});
  if (!ids.ok()) return 0;
  pagefuse::TextStream stream(*tokenizer);
  std::string pieces;
  for (int64_t id : *ids) pieces += stream.Add(id);
  pieces += stream.Finish();
  PF_CHECK(pieces == (*tokenizer)->Decode(*ids));
  PF_CHECK(!pagefuse::FirstBrokenByte(pieces));
  return 0;
}
