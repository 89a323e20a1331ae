// SPDX-License-Identifier: Apache-2.0
// Splits one answer into reasoning, content and tool calls while it is written.
//
// What is dropped: the marks; white space directly behind an opening mark of reasoning, before and behind a closing one, and around
// calls (as vLLM's parsers strip it); of calls all but names and arguments. All else comes out, in order: what looks like a mark or a
// call and is none is content. White space is " \t\r\n".
//
// Arguments come out while they are written: JSON as the very bytes, other syntaxes as JSON. What has come out cannot be taken back:
// arguments that turn out to be no JSON end the call in front of the byte that no JSON has, and the rest of the answer is content.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "pagefuse/text/answer/answer_format.h"

namespace pagefuse {

struct AnswerPiece {
  enum Kind {
    kContent,
    kReasoning,
    kCallBegin,      // text: the tool's name
    kCallArguments,  // text: the next part of the arguments, as JSON
    kCallEnd,
  };
  Kind kind = kContent;
  int call = -1;  // of call pieces: the first call of the answer is 0
  std::string text = {};
};

struct AnswerParserOptions {
  AnswerFormat format;
  bool begins_in_reasoning = false;  // BeginsInReasoning
  bool parses_tools = false;         // if not, calls are content
  // The tools that there are. A call of another is content. Empty: any name is a tool's.
  std::vector<std::string> tools = {};
};

// The pieces, those of one kind and call joined, do not depend on where the text was cut. Of an answer that was cut off the call that
// was being written ends too, without a rest of its arguments.
class AnswerParser {
 public:
  explicit AnswerParser(AnswerParserOptions options);
  ~AnswerParser();
  AnswerParser(AnswerParser&&) noexcept;
  AnswerParser& operator=(AnswerParser&&) noexcept;

  std::vector<AnswerPiece> Add(std::string_view text);
  // Once, at the end.
  std::vector<AnswerPiece> Finish();
  // Of calls that have begun.
  int calls() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pagefuse
