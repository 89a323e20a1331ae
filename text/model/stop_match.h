// SPDX-License-Identifier: Apache-2.0
// Ends a stream of text at a stop string, no byte of which is output.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/text/tokenizer/tokenizer.h"

namespace pagefuse {

// The special tokens among stops: they have no text in which they could be found, and stop by themselves.
// InvalidArgument, without the name of the option, for an empty stop and for one that has a special
// token within.
absl::StatusOr<std::vector<int64_t>> StopTokens(const Tokenizer& tokenizer,
                                                const std::vector<std::string>& stops);

// The stop that is complete first ends the text; of several that end at one place the longest. Where
// the text is cut into pieces makes no difference.
class StopMatch {
 public:
  // Empty stops are none.
  explicit StopMatch(std::vector<std::string> stops);

  // The text that can be shown now: what may still become a stop is held back. Nothing more once it
  // has stopped.
  std::string Add(std::string_view text);
  // The end of the text: what is held back is text after all.
  std::string Finish();

  bool stopped() const { return stop_ >= 0; }
  // The stop that was found.
  std::string_view stop() const { return stopped() ? stops_[stop_] : std::string_view(); }

 private:
  int StopAtEnd() const;
  size_t HeldBytes() const;

  std::vector<std::string> stops_;
  std::string held_;
  int stop_ = -1;
};

}  // namespace pagefuse
