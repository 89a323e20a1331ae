// SPDX-License-Identifier: Apache-2.0
// Compiles the patterns by which tokenizer files split text: Oniguruma's syntax as they use it,
// matched by PCRE2 with the character classes of Unicode 16.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace pagefuse {

// The pattern as PCRE2 takes it: \p{..}, \s, \d, \w and classes written out as ranges.
// InvalidArgument or Unimplemented naming what stands where.
absl::StatusOr<std::string> TranslatePattern(std::string_view pattern);

// Thread-safe once compiled.
class SplitRegex {
 public:
  static absl::StatusOr<SplitRegex> Compile(std::string_view pattern);

  // Calls `found(first, end)` for each match from left to right. `text` is UTF-8.
  // ResourceExhausted where the pattern backtracks without end.
  absl::Status ForEachMatch(std::string_view text,
                            const std::function<void(size_t, size_t)>& found) const;

 private:
  struct Code;
  explicit SplitRegex(std::shared_ptr<const Code> code) : code_(std::move(code)) {}
  std::shared_ptr<const Code> code_;
};

}  // namespace pagefuse
