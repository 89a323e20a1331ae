// SPDX-License-Identifier: Apache-2.0
// What is computed in a wider type is what it was.
#include <cstring>

#include "gtest/gtest.h"
#include "must.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/passes/lower/body_rewrites.h"

namespace pagefuse {
namespace {

Tensor All16(DataType type) {
  Tensor tensor = *Tensor::Allocate(type, {1 << 16});
  auto* bits = static_cast<uint16_t*>(tensor.mutable_data());
  for (int i = 0; i < 1 << 16; ++i) bits[i] = static_cast<uint16_t>(i);
  return tensor;
}

// Runs the nodes on all 16-bit patterns before and after; `op` must then compute in `wide`.
void ExpectTheSame(const std::string& type, const std::string& nodes, const std::string& op,
                   DataType wide) {
  SCOPED_TRACE(op);
  auto model = Must(ParseModel(StrCat("<ir_version: 10, opset_import: [\"\" : 21]>\ng (", type,
                                      "[N] x) => (", type, "[M] y) {\n", nodes, "\n}\n")));
  ASSERT_TRUE(InferShapes(model).ok());
  const Tensor x = All16(*DataTypeFromName(type));
  const auto want = Must(EvaluateModel(model, {{"x", x}}));
  WidenTypes(*model.graph);
  bool found = false;
  for (const auto& node : model.graph->nodes()) {
    if (!node->Is(op)) continue;
    found = true;
    EXPECT_EQ(node->output(0)->dtype(), wide);
  }
  EXPECT_TRUE(found);
  const auto got = Must(EvaluateModel(model, {{"x", x}}));
  ASSERT_EQ(got[0].dtype(), want[0].dtype());
  ASSERT_EQ(got[0].dims(), want[0].dims());
  const auto* a = static_cast<const uint16_t*>(want[0].data());
  const auto* b = static_cast<const uint16_t*>(got[0].data());
  for (int64_t i = 0; i < want[0].size(); ++i) {
    // A signalling NaN may have become quiet.
    if (a[i] != b[i] && ((a[i] & 0x7C00) != 0x7C00)) FAIL() << i << ": " << a[i] << ", " << b[i];
  }
}

TEST(WiderTypes, ShiftsOf16Bits) {
  for (const char* direction : {"LEFT", "RIGHT"}) {
    ExpectTheSame("uint16",
                  StrCat("n = Constant <value = uint16[1] {3}> ()\n y = BitShift <direction = \"",
                         direction, "\"> (x, n)"),
                  "BitShift", DataType::kUint32);
  }
}

TEST(WiderTypes, WhereAndPadOfHalves) {
  for (const char* type : {"float16", "bfloat16"}) {
    const int code = static_cast<int>(*DataTypeFromName(type));
    ExpectTheSame(type,
                  StrCat("f = Cast <to = 1> (x)\n zero = Constant <value_float = 0.0> ()\n"
                         " c = Less (f, zero)\n z = Cast <to = ",
                         code, "> (zero)\n y = Where (c, z, x)"),
                  "Where", DataType::kFloat);
    ExpectTheSame(type, "p = Constant <value_ints = [1, 2]> ()\n y = Pad (x, p)", "Pad",
                  DataType::kFloat);
  }
}

}  // namespace
}  // namespace pagefuse
