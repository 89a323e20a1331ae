// SPDX-License-Identifier: Apache-2.0
// Reads a tool call that is a JSON object: {"name": ..., "arguments": {...}}.
#pragma once

#include <string>
#include <string_view>

#include "pagefuse/text/answer/call_reader.h"
#include "pagefuse/text/answer/json_scanner.h"

namespace pagefuse {

// "parameters" is as good as "arguments"; "type" and "id" may stand beside them, in any order. Arguments are passed on as they come
// where the name stands before them, else when it has come. Members behind both are no matter.
class JsonCallReader : public CallReader {
 public:
  // The call ends with `closing`, in front of which the object's last brace may be missing; empty: with that brace.
  explicit JsonCallReader(std::string_view closing) : closing_(closing) {}
  Read Add(char c, CallSink& sink) override;

 private:
  enum State { kBegin, kKey, kInKey, kColon, kValue, kText, kArguments, kNext, kRest, kClosing };

  Read Go(State state) {
    state_ = state;
    return Read::kMore;
  }
  // One in front of which white space may stand.
  Read AddSpaced(char c, CallSink& sink);
  Read AddToKey(char c);
  Read BeginValue(char c, CallSink& sink);
  Read AddToText(char c, CallSink& sink);
  Read AddToArguments(char c, CallSink& sink);
  Read AddToRest(char c);

  std::string_view closing_;
  State state_ = kBegin;
  JsonScanner scanner_;
  std::string text_;       // of the string that is read, with its quotes
  std::string key_;        // of the member that is read
  std::string name_;       // empty until it is known
  std::string arguments_;  // that came before the name
};

}  // namespace pagefuse
