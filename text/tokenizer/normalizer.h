// SPDX-License-Identifier: Apache-2.0
// Normalises a text before a tokenizer splits it: Unicode normal forms and replacements.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/text/tokenizer/text_pattern.h"

namespace pagefuse {

class Normalizer {
 public:
  // "normalizer" of tokenizer.json; null changes nothing.
  static absl::StatusOr<Normalizer> FromJson(const nlohmann::json& json);

  bool changes_nothing() const { return steps_.empty(); }
  // `text` is UTF-8, and so is what comes out. ResourceExhausted, naming the step, if that grows
  // beyond all measure.
  absl::StatusOr<std::string> Apply(std::string_view text) const;

 private:
  struct Step {
    enum Kind { kNormalForm, kReplace, kPrepend, kStrip };
    Kind kind;
    int form = 0;                      // kNormalForm: options of utf8proc
    TextPattern pattern = {};          // kReplace
    std::string content = {};          // kReplace, kPrepend
    bool left = false, right = false;  // kStrip
  };
  static absl::StatusOr<Step> ReadStep(const JsonFields& part);
  static absl::StatusOr<std::string> Apply(const Step& step, std::string text, size_t most);
  std::vector<Step> steps_;
};

}  // namespace pagefuse
