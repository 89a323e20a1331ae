// SPDX-License-Identifier: Apache-2.0
// The tables of op_bench and op_peer: their calls run.
#include "op_cases.h"

#include <set>
#include <string>

#include "gtest/gtest.h"
#include "op_peer/standard_cases.h"

namespace pagefuse {
namespace {

TEST(OpCases, HaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const OpCase& row : AllOpCases()) {
    EXPECT_TRUE(names.insert(row.op + "/" + row.variant).second) << row.op << "/" << row.variant;
  }
}

// Larger ones take long; each op has smaller ones.
TEST(OpCases, SmallCallsOfEachOpRunOnEachKernel) {
  std::set<std::string> ops, run;
  for (const OpCase& row : AllOpCases()) {
    SCOPED_TRACE(row.op + "/" + row.variant);
    ops.insert(row.op);
    const int64_t tokens = row.tokens.empty() ? 0 : row.tokens.front();
    const Work work = row.work(tokens);
    EXPECT_GT(static_cast<double>(work.bytes) + work.flops, 0);
    if (work.bytes > int64_t{1} << 26 || work.flops > 5e9) continue;
    const std::unique_ptr<OpCall> call = row.make(tokens);
    call->Run(call->BestKernel());
    for (const std::string& kernel : row.kernels) {
      if (call->Has(kernel)) call->Run(kernel);
    }
    run.insert(row.op);
  }
  EXPECT_EQ(run, ops);
}

TEST(StandardCases, Run) {
  for (const OpPeerCase& row : StandardOpPeerCases()) {
    SCOPED_TRACE(row.name);
    const std::unique_ptr<OpCall> call = row.make();
    call->Run(call->BestKernel());
  }
}

}  // namespace
}  // namespace pagefuse
