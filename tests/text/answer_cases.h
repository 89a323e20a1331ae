// SPDX-License-Identifier: Apache-2.0
// Parses answers cut in every way, and shows what came out as a text to compare with.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "pagefuse/text/answer/answer_parser.h"

namespace pagefuse {

struct AnswerCase {
  std::string_view text;
  std::string_view expected;  // "R(reasoning)C(content)T(name)(arguments)"
};

// The pieces, those of one kind and call joined.
std::string ShownPieces(const std::vector<AnswerPiece>& pieces);

// The answer in the parts that end in front of the bytes `cuts`.
std::string ParsedInParts(const AnswerParserOptions& options, std::string_view text,
                          const std::vector<size_t>& cuts);

// Expects of each answer the same whole, in each two parts, and byte by byte.
void CheckAnswers(const AnswerParserOptions& options, const std::vector<AnswerCase>& cases);

// Options with formats of these names; empty names are no format. All tools are known.
AnswerParserOptions OptionsOf(std::string_view reasoning, std::string_view tools);

}  // namespace pagefuse
