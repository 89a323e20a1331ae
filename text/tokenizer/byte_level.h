// SPDX-License-Identifier: Apache-2.0
// Maps bytes to and from GPT-2's alphabet: every byte is a printable character, in which byte-level
// vocabularies are written.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace pagefuse {

std::string BytesAsCharacters(std::string_view bytes);
// Nothing if one of the characters stands for no byte.
std::optional<std::string> CharactersAsBytes(std::string_view characters);

}  // namespace pagefuse
