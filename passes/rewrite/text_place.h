// SPDX-License-Identifier: Apache-2.0
// Makes errors that show a place in a file.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

#include "pagefuse/ir/text/text_lexer.h"

namespace pagefuse {

// InvalidArgument: `mine.rules.txt:3:9: <message>`, the line, and a mark under the column.
absl::Status ErrorAt(std::string_view path, std::string_view text, size_t offset,
                     std::string_view message);

// The same for a part of a text.
using PlaceError = std::function<absl::Status(std::string_view at, std::string_view message)>;
PlaceError ErrorsIn(std::string path, std::string_view text);

// Where a token of a text begins: at its end that of kind kEnd.
size_t OffsetOf(const Token& token, std::string_view text);
// `expected a type, got "x"`, at the token.
absl::Status UnexpectedToken(const Token& token, std::string_view expected, std::string_view text,
                             const PlaceError& error);

// `line 3, column 5: message\n...`, as the text parser says it, as an error at that place of `text`.
// `shift` columns of the first line were put in front for the parser.
absl::Status ParserError(std::string_view message, std::string_view text, size_t shift,
                         const PlaceError& error);

}  // namespace pagefuse
