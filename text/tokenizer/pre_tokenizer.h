// SPDX-License-Identifier: Apache-2.0
// Splits a text into words before byte pairs are merged, since no merge crosses the border of a
// word.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/text/tokenizer/growth.h"
#include "pagefuse/text/tokenizer/text_pattern.h"

namespace pagefuse {

class PreTokenizer {
 public:
  // "pre_tokenizer" of tokenizer.json; null leaves a text whole.
  static absl::StatusOr<PreTokenizer> FromJson(const nlohmann::json& json);

  // The words of a piece of text (UTF-8, not empty). `first`: the piece begins the text.
  // ResourceExhausted, naming the step, if they grow beyond all measure.
  absl::StatusOr<std::vector<std::string>> Split(std::string_view piece, bool first) const;

 private:
  enum class Behavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };
  enum class Prefix { kNever, kFirst, kAlways };
  struct Step {
    enum Kind { kSplit, kByteLevel, kMetaspace };
    Kind kind = kSplit;
    bool splits = true;
    TextPattern pattern;
    Behavior behavior = Behavior::kIsolated;
    bool invert = false;
    std::string replacement;  // kMetaspace: stands for a space
    Prefix prefix = Prefix::kNever;
  };
  struct Word {
    std::string text;
    bool first;  // begins the text
  };
  static absl::StatusOr<Step> ReadStep(const JsonFields& part);
  static absl::Status ReadSplit(const JsonFields& part, Step& step);
  static absl::Status ReadByteLevel(const JsonFields& part, Step& step);
  static absl::Status ReadMetaspace(const JsonFields& part, Step& step);
  static absl::Status Apply(const Step& step, Growth& growth, std::vector<Word>& words);
  static absl::Status SplitWord(const Step& step, const Word& word, std::vector<Word>& out);
  // With the mark of spaces in place of spaces, and in front; of `most` bytes at most.
  static absl::Status Prefixed(const Step& step, Word& word, size_t most);

  std::vector<Step> steps_;
};

}  // namespace pagefuse
