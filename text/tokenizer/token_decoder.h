// SPDX-License-Identifier: Apache-2.0
// Decodes tokens to bytes, one token at a time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/text/tokenizer/text_pattern.h"

namespace pagefuse {

class TokenDecoder {
 public:
  // "decoder" of tokenizer.json; null puts spaces between tokens. Unimplemented for what would need
  // the end of a text before its beginning can be written.
  static absl::StatusOr<TokenDecoder> FromJson(const nlohmann::json& json);

  // The bytes of a token's text. `first`: it begins the text.
  std::string Bytes(std::string_view token, bool first) const;
  // How many bytes at the beginning of a whole text do not belong to it.
  size_t LeadingBytes(std::string_view text) const;

 private:
  struct Step {
    enum Kind { kByteLevel, kByteFallback, kReplace, kStrip, kMetaspace, kSpaces };
    Kind kind = kByteLevel;
    TextPattern pattern = {};     // kReplace
    std::string content = {};     // kReplace, kStrip; kMetaspace: what stands for a space
    int64_t start = 0, stop = 0;  // kStrip: how many of `content` may go at each end
    bool drops_first = false;     // kMetaspace: none at the beginning of the text
  };
  static absl::StatusOr<Step> ReadStep(const JsonFields& part);
  static std::string Apply(const Step& step, std::string token, bool first, size_t most);

  std::vector<Step> steps_;
  Step whole_ = {.kind = Step::kStrip};  // what is stripped from a whole text
};

}  // namespace pagefuse
