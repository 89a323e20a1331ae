// The forms that fusion rules look for are functions of the ports of their op.
#include <algorithm>
#include <set>
#include <string>

#include "gtest/gtest.h"
#include "must.h"

#include "pagefuse/ir/text/text.h"
#include "pagefuse/ops/registry/registry.h"

namespace pagefuse {
namespace {

bool HasPort(const std::vector<Port>& ports, const std::string& name) {
  return std::any_of(ports.begin(), ports.end(),
                     [&](const Port& port) { return port.name == name; });
}

class Variants : public ::testing::TestWithParam<const char*> {};

TEST_P(Variants, AreFunctionsOfThePortsWithNamesOfTheirOwn) {
  const OpDef* op = OpRegistry::Global().Find("pagefuse", GetParam(), 1);
  ASSERT_NE(op, nullptr);
  std::set<std::string> names;
  for (const DecompositionVariant& variant : op->variants()) {
    SCOPED_TRACE(variant.name);
    EXPECT_TRUE(names.insert(variant.name).second) << "the name is taken";
    const Function function = Must(ParseFunction(variant.text));
    for (const Value* input : function.body->inputs()) {
      EXPECT_TRUE(HasPort(op->inputs(), input->name())) << input->name();
    }
    for (const Value* output : function.body->outputs()) {
      EXPECT_TRUE(HasPort(op->outputs(), output->name())) << output->name();
      EXPECT_NE(output->producer(), nullptr) << output->name();
    }
  }
  EXPECT_FALSE(names.empty());
}

INSTANTIATE_TEST_SUITE_P(
    Ops, Variants,
    ::testing::Values("PagedCacheInsert", "RopeCacheInsert", "MergeAttnStates", "KCacheQuantInsert",
                      "MlaCacheInsert", "CompressorStateInsert", "CompressCacheInsert",
                      "InvRopeQuant", "QNormRopeKvInsert", "MqaLogits", "PagedMqaLogits",
                      "IndexerTopK", "TopKSlots", "CombineTopKWindow", "ReqIndexToSlot",
                      "IndexerQRopeQuant", "IndexerKQuantInsert", "IndexerKGather",
                      "TurboQuantInsert", "TurboQuantAttention", "TurboQuantDequant",
                      "SparseMlaAttention"),
    [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace pagefuse
