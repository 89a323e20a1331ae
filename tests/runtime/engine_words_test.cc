// SPDX-License-Identifier: Apache-2.0
// Options of the engine as people write them.
#include <cstdint>
#include <string>

#include "must.h"
#include <gtest/gtest.h>

#include "pagefuse/runtime/engine.h"

namespace pagefuse {
namespace {

template <class Value>
std::string ErrorOf(const absl::StatusOr<Value>& value) {
  return std::string(value.status().message());
}

TEST(EngineWords, NameWhatPrefixesAreUsedAgain) {
  EXPECT_EQ(Must(ParsePrefixReuse("exact")), PrefixReuse::kExact);
  EXPECT_EQ(Must(ParsePrefixReuse("all")), PrefixReuse::kAll);
  EXPECT_EQ(Must(ParsePrefixReuse("off")), PrefixReuse::kOff);
  EXPECT_EQ(ErrorOf(ParsePrefixReuse("most")), "expected exact, all or off, got \"most\"");
}

TEST(EngineWords, TurnDraftsOff) {
  EXPECT_TRUE(Must(ParseDrafts("auto")));
  EXPECT_FALSE(Must(ParseDrafts("off")));
  EXPECT_EQ(ErrorOf(ParseDrafts("on")), "expected auto or off, got \"on\"");
}

TEST(EngineWords, CountMilliseconds) {
  EXPECT_EQ(Must(StepSecondsOf(250)), 0.25);
  EXPECT_EQ(ErrorOf(StepSecondsOf(0)), "expected 1 to 2147483647, got 0");
  EXPECT_EQ(ErrorOf(StepSecondsOf(int64_t{1} << 40)),
            "expected 1 to 2147483647, got 1099511627776");
}

}  // namespace
}  // namespace pagefuse
