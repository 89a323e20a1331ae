// SPDX-License-Identifier: Apache-2.0
// Texts of dims: which are expressions, and which are names.
#include <gtest/gtest.h>

#include "pagefuse/ir/tensor/shape.h"

namespace pagefuse {
namespace {

TEST(DimParse, SignsBetweenBlanksMakeSums) {
  EXPECT_EQ(Dim::Parse("past + seq"), Dim::Symbol("past") + Dim::Symbol("seq"));
  EXPECT_EQ(Dim::Parse("seq - 1"), Dim::Symbol("seq") - Dim(1));
  EXPECT_EQ(Dim::Parse("-seq + 3"), Dim(3) - Dim::Symbol("seq"));
}

TEST(DimParse, SignsWithoutBlanksArePartsOfNames) {
  EXPECT_EQ(Dim::Parse("batch-size"), Dim::Symbol("batch-size"));
  EXPECT_EQ(Dim::Parse("a+b"), Dim::Symbol("a+b"));
  EXPECT_EQ(Dim::Parse("seq -1"), Dim::Symbol("seq -1"));
  EXPECT_NE(Dim::Parse("batch-size"), Dim::Symbol("batch") - Dim::Symbol("size"));
}

TEST(DimParse, ProductsNeedNoBlanks) {
  EXPECT_EQ(Dim::Parse("2*seq"), Dim(2) * Dim::Symbol("seq"));
  EXPECT_EQ(Dim::Parse("4*(seq//4)"), Dim(4) * Dim::Symbol("seq").FloorDiv(Dim(4)));
}

TEST(DimParse, ReadsWhatToStringWrites) {
  const Dim name = Dim::Symbol("batch-size");
  for (const Dim& dim : {name, Dim(2) * name, Dim(2) * name - Dim(3), name + Dim::Symbol("seq"),
                         Dim(-1) * name + Dim::Symbol("max(a, b)")}) {
    EXPECT_EQ(Dim::Parse(dim.ToString()), dim) << dim.ToString();
  }
}

}  // namespace
}  // namespace pagefuse
