// SPDX-License-Identifier: Apache-2.0
// Decoders of tests/data/decoders with other lines in place of some, and what becomes of them.
#pragma once

#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace pagefuse {

struct ChangedDecoder {
  const char* name;
  const char* file;
  std::vector<std::pair<const char*, const char*>> lines;  // and what stands there instead
  const char* reason = "";                                 // why it is not paged; empty: it is

  static std::string NameOf(const testing::TestParamInfo<ChangedDecoder>& info) {
    return info.param.name;
  }
};
void PrintTo(const ChangedDecoder& changed, std::ostream* out);

// Paged, in chunks and in a batch, it gives the tokens that it gives as it is; or the reason why it
// is not paged is the given one.
void ExpectPagedOrNamed(const ChangedDecoder& changed);

}  // namespace pagefuse
