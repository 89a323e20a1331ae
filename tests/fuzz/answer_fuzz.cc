// SPDX-License-Identifier: Apache-2.0
// Any answer in any format gives the same pieces wherever it is cut, loses nothing but marks, white space and the frames of calls,
// and gives arguments that JSON can begin with. The input is three bytes that choose formats, tools and cuts, and the answer.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "random.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/text/answer/answer_parser.h"
#include "pagefuse/text/answer/json_scanner.h"
#include "pagefuse/text/utf8.h"

namespace {

using pagefuse::AnswerParser;
using pagefuse::AnswerParserOptions;
using pagefuse::AnswerPiece;

void AddJoined(std::vector<AnswerPiece> more, std::vector<AnswerPiece>* pieces) {
  for (AnswerPiece& piece : more) {
    PF_CHECK(piece.kind == AnswerPiece::kCallEnd || !piece.text.empty());
    const bool joins = piece.kind != AnswerPiece::kCallBegin && piece.kind != AnswerPiece::kCallEnd;
    if (joins && !pieces->empty() && pieces->back().kind == piece.kind) {
      pieces->back().text += piece.text;
    } else {
      pieces->push_back(std::move(piece));
    }
  }
}

// Parts of `most` bytes at most; of whole characters, then each piece is UTF-8.
std::vector<AnswerPiece> Parse(const AnswerParserOptions& options, std::string_view text,
                               size_t most, bool whole_characters, uint64_t seed) {
  pagefuse::fuzz::Random random(seed);
  AnswerParser parser(options);
  std::vector<AnswerPiece> pieces;
  while (!text.empty()) {
    size_t size = std::min(text.size(), 1 + random.Below(most));
    while (whole_characters && size < text.size() && (text[size] & 0xC0) == 0x80) ++size;
    std::vector<AnswerPiece> more = parser.Add(text.substr(0, size));
    for (const AnswerPiece& piece : more) {
      PF_CHECK(!whole_characters || !pagefuse::FirstBrokenByte(piece.text));
    }
    AddJoined(std::move(more), &pieces);
    text.remove_prefix(size);
  }
  AddJoined(parser.Finish(), &pieces);
  return pieces;
}

void CheckSame(const std::vector<AnswerPiece>& one, const std::vector<AnswerPiece>& other) {
  PF_CHECK(one.size() == other.size());
  for (size_t i = 0; i < one.size(); ++i) {
    PF_CHECK(one[i].kind == other[i].kind && one[i].call == other[i].call);
    PF_CHECK(one[i].text == other[i].text);
  }
}

// Calls begin and end in turn, and their arguments are the beginning of an object of JSON.
void CheckCalls(const std::vector<AnswerPiece>& pieces) {
  int calls = 0;
  bool in_call = false;
  for (const AnswerPiece& piece : pieces) {
    if (piece.kind == AnswerPiece::kContent || piece.kind == AnswerPiece::kReasoning) {
      PF_CHECK(!in_call && piece.call == -1);
      continue;
    }
    PF_CHECK(in_call == (piece.kind != AnswerPiece::kCallBegin));
    calls += piece.kind == AnswerPiece::kCallBegin;
    in_call = piece.kind != AnswerPiece::kCallEnd;
    PF_CHECK(piece.call == calls - 1);
    if (piece.kind != AnswerPiece::kCallArguments) continue;
    PF_CHECK(piece.text[0] == '{');
    pagefuse::JsonScanner scanner;
    for (const char c : piece.text) PF_CHECK(scanner.Add(c) != pagefuse::JsonScanner::Read::kBad);
  }
  PF_CHECK(!in_call);
}

// What comes out stands in the answer, in order; and all of it where there are no marks.
void CheckNothingIsLost(const AnswerParserOptions& options, std::string_view text,
                        const std::vector<AnswerPiece>& pieces) {
  const pagefuse::ToolFormat* const tools = options.format.tools;
  const bool json = tools == nullptr || tools->text.syntax == pagefuse::ArgumentSyntax::kJson;
  bool only_content = true;
  std::string content;
  size_t at = 0;
  for (const AnswerPiece& piece : pieces) {
    only_content = only_content && piece.kind == AnswerPiece::kContent;
    content += piece.text;
    if (piece.kind == AnswerPiece::kCallBegin) continue;
    if (piece.kind == AnswerPiece::kCallArguments && !json) continue;
    for (const char c : piece.text) {
      at = text.find(c, at);
      PF_CHECK(at != std::string_view::npos);
      ++at;
    }
  }
  const pagefuse::ReasoningFormat* const reasoning = options.format.reasoning;
  bool may_drop = !only_content;
  if (reasoning != nullptr) {
    may_drop = may_drop || options.begins_in_reasoning ||
               text.find(reasoning->opening) != std::string_view::npos;
    for (const std::string_view mark : reasoning->dropped) {
      may_drop = may_drop || text.find(mark) != std::string_view::npos;
    }
  }
  PF_CHECK(may_drop || content == text);
}

AnswerParserOptions ReadOptions(uint8_t formats, uint8_t flags) {
  AnswerParserOptions options;
  const auto reasoning = pagefuse::ReasoningFormats();
  const auto tools = pagefuse::ToolFormats();
  const size_t kind = formats % (reasoning.size() + 1);
  const size_t tool = formats / 8 % (tools.size() + 1);
  if (kind > 0) options.format.reasoning = &reasoning[kind - 1];
  if (tool > 0) options.format.tools = tools[tool - 1];
  options.parses_tools = tool > 0;
  options.begins_in_reasoning = flags & 1;
  if (flags & 2) options.tools = {"f", "get_weather"};
  return options;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  const AnswerParserOptions options = ReadOptions(data[0], data[1]);
  const std::string_view text(reinterpret_cast<const char*>(data) + 3, size - 3);
  const auto whole = Parse(options, text, text.size(), /*whole_characters=*/false, 0);
  CheckCalls(whole);
  CheckNothingIsLost(options, text, whole);
  CheckSame(whole, Parse(options, text, 1, /*whole_characters=*/false, 0));
  CheckSame(whole, Parse(options, text, 9, /*whole_characters=*/false, data[2]));
  const std::string valid = pagefuse::ReplaceBrokenUtf8(text);
  Parse(options, valid, 5, /*whole_characters=*/true, data[2]);
  return 0;
}
