// Checks that the tests of the text form share.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "pagefuse/ir/text.h"

namespace pagefuse {

inline Model Parse(std::string_view text) {
  auto model = ParseModel(text);
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) {
    Model empty;
    empty.graph = std::make_shared<Graph>();
    return empty;
  }
  return *std::move(model);
}

// Parses `text`, prints it, and expects what is printed to read and print the same. Returns the
// print.
inline std::string Print(std::string_view text) {
  const std::string printed = PrintModel(Parse(text));
  auto again = ParseModel(printed);
  EXPECT_TRUE(again.ok()) << again.status() << "\n" << printed;
  if (again.ok()) {
    EXPECT_EQ(PrintModel(*again), printed);
  }
  return printed;
}

inline void ExpectFixedPoint(std::string_view text) { EXPECT_EQ(Print(text), text); }

}  // namespace pagefuse
