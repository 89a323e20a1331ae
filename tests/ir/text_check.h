// SPDX-License-Identifier: Apache-2.0
// Checks that the tests of the text form share.
#pragma once

#include <string>
#include <string_view>

#include "must.h"
#include <gtest/gtest.h>

#include "pagefuse/ir/text/text.h"

namespace pagefuse {

inline Model Parse(std::string_view text) { return Must(ParseModel(text)); }

// Parses `text`, prints it, and expects what is printed to read and print the same. Returns the
// print.
inline std::string Print(std::string_view text) {
  const std::string printed = PrintModel(Parse(text));
  EXPECT_EQ(PrintModel(Parse(printed)), printed);
  return printed;
}

inline void ExpectFixedPoint(std::string_view text) { EXPECT_EQ(Print(text), text); }

}  // namespace pagefuse
