// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/formats/weight_format.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "must.h"

namespace pagefuse {
namespace {

TEST(WeightFormat, IsFoundByItsNamesAndNamesAllOthers) {
  EXPECT_EQ(WeightFormatNames(), "float32, bf16, int8, int4");
  for (const WeightFormat& format : WeightFormats()) {
    EXPECT_EQ(Must(FindWeightFormat(format.name)).bits, format.bits);
  }
  EXPECT_EQ(Must(FindWeightFormat("bfloat16")).name, "bf16");
  EXPECT_EQ(FindWeightFormat("").status().message(),
            "expected float32, bf16, int8, int4, got \"\"");
}

// The table of docs/weights.md.
TEST(WeightFormat, TellsBytesOfAWeight) {
  EXPECT_EQ(Must(FindWeightFormat("float32")).bytes(), 4);
  EXPECT_EQ(Must(FindWeightFormat("bf16")).bytes(), 2);
  EXPECT_EQ(Must(FindWeightFormat("int8")).bytes(), 1.125);
  EXPECT_EQ(Must(FindWeightFormat("int4")).bytes(), 0.625);
}

TEST(WeightFormat, ThatChangesNothingIsFloat32Alone) {
  for (const WeightFormat& format : WeightFormats()) {
    EXPECT_EQ(format.changes_nothing(), format.name == "float32") << format.name;
    EXPECT_EQ(format.block > 0, format.layout == WeightLayout::kCodes) << format.name;
  }
}

}  // namespace
}  // namespace pagefuse
