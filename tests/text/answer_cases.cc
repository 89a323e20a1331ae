// SPDX-License-Identifier: Apache-2.0
#include "tests/text/answer_cases.h"

#include "gtest/gtest.h"
#include "must.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

// What each kind opens and closes, so that a call without an end shows.
std::string ShownPiece(const AnswerPiece& piece, int calls) {
  switch (piece.kind) {
    case AnswerPiece::kContent:
      return StrCat("C(", piece.text, ")");
    case AnswerPiece::kReasoning:
      return StrCat("R(", piece.text, ")");
    case AnswerPiece::kCallBegin:
      EXPECT_EQ(piece.call, calls);
      return StrCat("T(", piece.text, ")(");
    case AnswerPiece::kCallArguments:
      EXPECT_EQ(piece.call, calls - 1);
      return piece.text;
    case AnswerPiece::kCallEnd:
      EXPECT_EQ(piece.call, calls - 1);
      break;
  }
  return ")";
}

}  // namespace

std::string ShownPieces(const std::vector<AnswerPiece>& pieces) {
  std::vector<AnswerPiece> joined;
  for (const AnswerPiece& piece : pieces) {
    const bool joins = piece.kind == AnswerPiece::kContent || piece.kind == AnswerPiece::kReasoning;
    EXPECT_TRUE(piece.kind == AnswerPiece::kCallEnd || !piece.text.empty());
    if (joins && !joined.empty() && joined.back().kind == piece.kind) {
      joined.back().text += piece.text;
    } else {
      joined.push_back(piece);
    }
  }
  std::string shown;
  int calls = 0;
  for (const AnswerPiece& piece : joined) {
    shown += ShownPiece(piece, calls);
    calls += piece.kind == AnswerPiece::kCallBegin;
  }
  return shown;
}

std::string ParsedInParts(const AnswerParserOptions& options, std::string_view text,
                          const std::vector<size_t>& cuts) {
  AnswerParser parser(options);
  std::vector<AnswerPiece> pieces;
  const auto take = [&pieces](std::vector<AnswerPiece> more) {
    pieces.insert(pieces.end(), more.begin(), more.end());
  };
  size_t first = 0;
  for (const size_t cut : cuts) {
    take(parser.Add(text.substr(first, cut - first)));
    first = cut;
  }
  take(parser.Add(text.substr(first)));
  take(parser.Finish());
  return ShownPieces(pieces);
}

void CheckAnswers(const AnswerParserOptions& options, const std::vector<AnswerCase>& cases) {
  for (const AnswerCase& answer : cases) {
    EXPECT_EQ(ParsedInParts(options, answer.text, {}), answer.expected) << answer.text;
    std::vector<size_t> all;
    for (size_t cut = 1; cut < answer.text.size(); ++cut) {
      ASSERT_EQ(ParsedInParts(options, answer.text, {cut}), answer.expected)
          << "cut at byte " << cut << " of " << answer.text;
      all.push_back(cut);
    }
    ASSERT_EQ(ParsedInParts(options, answer.text, all), answer.expected)
        << "byte by byte: " << answer.text;
  }
}

AnswerParserOptions OptionsOf(std::string_view reasoning, std::string_view tools) {
  AnswerParserOptions options;
  options.format = Must(FindAnswerFormat("", nullptr,
                                         {.reasoning = reasoning.empty() ? "none" : reasoning,
                                          .tools = tools.empty() ? "none" : tools}));
  options.parses_tools = !tools.empty();
  return options;
}

}  // namespace pagefuse
