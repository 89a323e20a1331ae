// SPDX-License-Identifier: Apache-2.0
// Operations on texts with the semantics of Python's strings: white space, characters, case.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pagefuse::chat_template {

// How many bytes of white space (str.isspace) the text begins with.
size_t LeadingSpace(std::string_view text);
// Where the text ends without the white space behind it.
size_t TrimmedEnd(std::string_view text);

// Where each character begins, and the end.
std::vector<size_t> CharacterStarts(std::string_view text);
size_t CharacterCount(std::string_view text);

std::string Upper(std::string_view text);
std::string Lower(std::string_view text);
// The first letter large, the others small; of the text, or of each word.
std::string Capitalized(std::string_view text);
std::string Titled(std::string_view text);

}  // namespace pagefuse::chat_template
