// SPDX-License-Identifier: Apache-2.0
// The case tables of tests/ops on the device, for every op that has a kernel there: the outputs are
// those of the definition within the tolerances of the table, nothing outside of tensors is written,
// and what nobody wrote is not read.
#include <algorithm>
#include <chrono>
#include <numeric>
#include <string>
#include <vector>

#include "device_case.h"
#include "device_op.h"
#include "must.h"
#include "op_run.h"
#include "other_sizes.h"
#include "report.h"
#include "settings.h"
#include <gtest/gtest.h>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/evaluate/evaluate.h"

namespace pagefuse {

#define PF_OP(family, op)  \
  namespace family##_ops { \
    OpCases op##Cases();   \
  }
#include "pagefuse/ops/registry/ops.inc"
#undef PF_OP

namespace {

struct OpParam {
  std::string domain, name, family;
  OpCases (*cases)();
};
void PrintTo(const OpParam& param, std::ostream* os) { *os << param.domain << "." << param.name; }

const OpDef* FindOp(std::string_view domain, std::string_view name) {
  return OpRegistry::Global().Find(domain, name, domain.empty() ? kNewestOpset : 1);
}

// Those with a kernel for the device.
std::vector<OpParam> DeviceOps() {
  struct Listed {
    const char* family;
    OpCases (*cases)();
  };
  constexpr Listed kListed[] = {
#define PF_OP(family, op) {#family, family##_ops::op##Cases},
#include "pagefuse/ops/registry/ops.inc"
#undef PF_OP
  };
  std::vector<OpParam> ops;
  for (const Listed& listed : kListed) {
    const OpCases table = listed.cases();
    const OpDef* op = FindOp(table.domain(), table.op());
    if (op == nullptr || !HasDeviceKernel(*op)) continue;
    ops.push_back({table.domain(), table.op(), listed.family, listed.cases});
  }
  return ops;
}

int64_t Elements(const OpCase& op_case) {
  return std::accumulate(
      op_case.inputs.begin(), op_case.inputs.end(), int64_t{0},
      [](int64_t sum, const Tensor& t) { return sum + (t.defined() ? t.size() : 0); });
}

class DeviceOp : public ::testing::TestWithParam<OpParam> {
 protected:
  DeviceOp() : table_(GetParam().cases()), op_(FindOp(table_.domain(), table_.op())) {}
  void SetUp() override { ASSERT_TRUE(DeviceIsWell()); }

  std::vector<OpCase> CasesBySize() const {
    std::vector<OpCase> cases = table_.cases();
    std::ranges::stable_sort(cases, {}, Elements);
    return cases;
  }
  bool Check(const OpCase& op_case, CaseKind kind, InputsFrom inputs = InputsFrom::kHost) {
    return CheckOnDevice(*op_, table_, op_case, kind, inputs);
  }

  OpCases table_;
  const OpDef* op_;
};

TEST_P(DeviceOp, GivesWhatTheReferenceGives) {
  for (const OpCase& op_case : CasesBySize()) Check(op_case, CaseKind::kTable);
}

// As inside of a graph, where the host knows no contents.
TEST_P(DeviceOp, GivesTheSameWhereTheDeviceComputesItsInputs) {
  for (const OpCase& op_case : CasesBySize()) {
    Check(op_case, CaseKind::kTable, InputsFrom::kDevice);
    Check(op_case, CaseKind::kTable, InputsFrom::kBoth);
  }
}

// Some of the table's cases in random sizes, or as many as there is time for.
TEST_P(DeviceOp, GivesWhatTheReferenceGivesInOtherSizes) {
  if (TestSettings().sanitize) GTEST_SKIP() << "the smallest cases are enough";
  const int wanted = TestSettings().random_cases, tries = 4 * wanted;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(2500);
  const std::vector<OpCase> cases = table_.cases();
  int done = 0;
  for (uint64_t seed = 0; seed < static_cast<uint64_t>(tries) && done < wanted; ++seed) {
    if (std::chrono::steady_clock::now() > end) break;
    std::optional<OpCase> other = InOtherSizes(*op_, cases[seed % cases.size()], seed);
    if (!other) continue;
    CaseNode call(*op_, table_, *other);
    if (!InferOutputs(*op_, call).ok()) continue;
    if (!op_->is_elementwise() && !other->within) {
      // Tolerances of a table are those of its own sizes; longer sums cancel further.
      other->within = table_.tolerance(DataType::kFloat);
      other->within->atol = std::max(other->within->atol, 1e-5);
    }
    other->name += StrCat(" in other sizes, seed ", seed);
    done += Check(*other, CaseKind::kRandom) ? 1 : 0;
  }
}

TEST_P(DeviceOp, RejectsBadInputs) {
  if (TestSettings().sanitize) GTEST_SKIP() << "nothing runs on the device";
  for (const auto& [op_case, message] : table_.rejected()) {
    SCOPED_TRACE(message);
    CaseNode call(*op_, table_, op_case);
    const auto model = DeviceModel::Make(ModelOf(call), TestSettings().op_device());
    // What is wrong with a node already, the graph's checks say in their own words.
    if (!model.ok() || !OnlyPlace(**model).on_device) continue;
    const GuardedRun guarded;
    const absl::Status status = (*model)->Run(FeedsOf(call)).status();
    EXPECT_NE(status.message().find(message), absl::string_view::npos) << status;
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, DeviceOp, ::testing::ValuesIn(DeviceOps()), [](const auto& info) {
  return info.param.family + "_" + info.param.name;
});
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceOp);

}  // namespace
}  // namespace pagefuse
