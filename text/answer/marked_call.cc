// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/answer/marked_call.h"

#include "pagefuse/text/answer/json_text.h"

namespace pagefuse {

CallReader::Read MarkedCallReader::Add(char c, CallSink& sink) {
  switch (parts_[at_].kind) {
    case CallPart::kWord:
    case CallPart::kName:
      return AddToWord(c, sink);
    case CallPart::kArguments:
      return AddToArguments(c, sink);
    default:
      return AddToMark(c, sink);
  }
}

CallReader::Read MarkedCallReader::AddToMark(char c, CallSink& sink) {
  const bool optional = parts_[at_].kind == CallPart::kOptionalMark && !in_literal();
  const Read read = ReadLiteral(parts_[at_].mark, c);
  if (read == Read::kDone) return Next();
  if (read == Read::kMore || !optional) return read;
  ++at_;
  return Add(c, sink);
}

CallReader::Read MarkedCallReader::AddToWord(char c, CallSink& sink) {
  const Read read = ReadWord(c, &word_);
  if (read != Read::kDone) return read;
  if (parts_[at_].kind == CallPart::kName) name_ = word_;
  word_.clear();
  ++at_;
  return Add(c, sink);
}

CallReader::Read MarkedCallReader::AddToArguments(char c, CallSink& sink) {
  if (!in_arguments_) {
    if (IsJsonSpace(c)) return Read::kMore;
    if (c != '{' || !sink.BeginCall(name_)) return Broken(c);
    in_arguments_ = true;
  }
  const JsonScanner::Read read = scanner_.Add(c);
  if (read == JsonScanner::Read::kBad) return Broken(c);
  sink.AddArguments({&c, 1});
  return read == JsonScanner::Read::kDone ? Next() : Read::kMore;
}

}  // namespace pagefuse
