// SPDX-License-Identifier: Apache-2.0
// Reads a tool call whose name and arguments stand between marks, as DeepSeek V3 and V3.1 write it.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "pagefuse/text/answer/call_reader.h"
#include "pagefuse/text/answer/json_scanner.h"

namespace pagefuse {

// A part of a call; white space may stand before each.
struct CallPart {
  enum Kind {
    kMark,
    kOptionalMark,
    kWord,  // a word that says nothing
    kName,
    kArguments,  // a JSON object, passed on as it comes
  };
  Kind kind = kMark;
  std::string_view mark = {};
};

class MarkedCallReader : public CallReader {
 public:
  // The parts must outlive the reader. The last is a mark, and the name is before the arguments.
  explicit MarkedCallReader(std::span<const CallPart> parts) : parts_(parts) {}
  Read Add(char c, CallSink& sink) override;

 private:
  Read Next() {
    ++at_;
    return at_ == parts_.size() ? Read::kDone : Read::kMore;
  }
  Read AddToMark(char c, CallSink& sink);
  Read AddToWord(char c, CallSink& sink);
  Read AddToArguments(char c, CallSink& sink);

  std::span<const CallPart> parts_;
  size_t at_ = 0;
  std::string word_, name_;
  bool in_arguments_ = false;
  JsonScanner scanner_;
};

}  // namespace pagefuse
