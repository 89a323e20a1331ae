// SPDX-License-Identifier: Apache-2.0
// The test of every op: see op_test.h for what is checked.
#include "op_test.h"

#include <algorithm>
#include <map>

#include "gtest/gtest.h"
#include "must.h"
#include "op_run.h"
#include "simd_targets.h"

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
  const char* name;
  OpCases (*cases)();
};
void PrintTo(const OpParam& param, std::ostream* os) { *os << param.name; }

constexpr OpParam kOps[] = {
#define PF_OP(family, op) {#family "_" #op, family##_ops::op##Cases},
#include "pagefuse/ops/registry/ops.inc"
#undef PF_OP
};

class OpTest : public ::testing::TestWithParam<OpParam> {
 protected:
  OpTest() : table_(GetParam().cases()) {
    op_ = OpRegistry::Global().Find(table_.domain(), table_.op(), table_.domain().empty() ? 28 : 1);
  }
  void SetUp() override {
    ASSERT_NE(op_, nullptr);
    ASSERT_FALSE(table_.cases().empty());
  }

  OpCases table_;
  const OpDef* op_ = nullptr;
};

bool Supports(const Kernel& kernel, CaseNode& call, const OpDef& op) {
  const KernelQuery query{&call.node(), call.opset()};
  if (!InferOutputs(op, call).ok()) return false;
  const absl::StatusOr<KernelChoice> choice = ChooseKernel(query, kernel.name);
  return choice.ok() && choice->kernel == &kernel;
}

TEST_P(OpTest, ReferenceGivesExpectedOutputs) {
  for (const OpCase& op_case : table_.cases()) {
    if (op_case.outputs.empty()) continue;
    SCOPED_TRACE(op_case.name);
    CaseNode call(*op_, table_, op_case);
    const std::vector<Tensor> outputs = Must(RunReference(*op_, call));
    ExpectClose(outputs, op_case.outputs, table_, op_case);
  }
}

TEST_P(OpTest, KernelsAgreeWithReference) {
  for (const OpCase& op_case : table_.cases()) {
    SCOPED_TRACE(op_case.name);
    CaseNode call(*op_, table_, op_case);
    const std::vector<Tensor> want = Must(RunReference(*op_, call));
    for (const Kernel& kernel : op_->kernels()) {
      if (!Supports(kernel, call, *op_)) continue;
      SCOPED_TRACE(kernel.name);
      const auto check = [&] {
        for (const bool in_place : {false, true}) {
          for (const int64_t misalignment : {0, 1}) {
            const int64_t block_gap = 40 * misalignment;
            const auto got =
                Must(RunGuarded(*op_, call, {&kernel, in_place, misalignment, block_gap}));
            ExpectClose(got, want, table_, op_case);
          }
        }
      };
      // Plain loops are the same on every target.
      if (kernel.name == "reference") {
        check();
      } else {
        testing::ForEachSimdTarget(check);
      }
    }
  }
}

TEST_P(OpTest, ReferenceAgreesWithDecomposition) {
  if (!op_->has_decomposition()) return;
  for (const OpCase& op_case : table_.cases()) {
    if (!op_case.decomposes) continue;
    SCOPED_TRACE(op_case.name);
    CaseNode call(*op_, table_, op_case);
    const std::vector<Tensor> got = Must(RunReference(*op_, call));
    const std::vector<Tensor> want =
        Must(EvaluateNode(call.node(), call.opset(), call.inputs(), {.decompose = true}));
    ExpectClose(got, want, table_, op_case);
  }
}

// Sizes over 1 become symbols, equal sizes the same one; contents are unknown except where an input
// is a constant. What inference says then, with the numbers put back, must be the real shape
// wherever it says anything.
TEST_P(OpTest, SymbolicShapesAreTheRealOnes) {
  for (const OpCase& op_case : table_.cases()) {
    SCOPED_TRACE(op_case.name);
    CaseNode call(*op_, table_, op_case);
    const auto real = Must(InferOutputs(*op_, call));
    std::map<std::string, Dim> numbers;
    std::vector<ShapeContext::Known> known;
    for (const Tensor& input : call.inputs()) {
      known.emplace_back();
      if (!input.defined()) continue;
      std::vector<Dim> dims;
      for (int64_t size : input.dims()) {
        const std::string symbol = StrCat("n", size);
        if (size > 1) numbers[symbol] = Dim(size);
        dims.push_back(size > 1 ? Dim::Symbol(symbol) : Dim(size));
      }
      known.back() = {input.dtype(), Shape(std::move(dims)), std::nullopt, nullptr};
      const size_t i = std::min(known.size(), op_->inputs().size()) - 1;
      if (op_->inputs()[i].role == PortRole::kMetadata) known.back().tensor = &input;
    }
    ShapeContext context(call.node(), call.opset(), std::move(known));
    Must(op_->Infer(context));
    for (size_t i = 0; i < real.size(); ++i) {
      if (!context.outputs()[i].shape) continue;
      const Shape symbolic = context.outputs()[i].shape->Substitute(numbers);
      const Shape& shape = *real[i].shape;
      ASSERT_EQ(symbolic.rank(), shape.rank());
      for (int axis = 0; axis < shape.rank(); ++axis) {
        if (!symbolic[axis].is_constant()) continue;
        EXPECT_EQ(symbolic[axis], shape[axis]) << "axis " << axis;
      }
    }
  }
}

TEST_P(OpTest, RejectsBadInputs) {
  for (const auto& [op_case, message] : table_.rejected()) {
    SCOPED_TRACE(message);
    CaseNode call(*op_, table_, op_case);
    for (const Kernel& kernel : op_->kernels()) {
      if (kernel.device != Device::kCpu) continue;
      const auto outputs = RunGuarded(*op_, call, {&kernel});
      ASSERT_FALSE(outputs.ok());
      EXPECT_NE(outputs.status().message().find(message), absl::string_view::npos)
          << outputs.status();
    }
    if (!op_->kernels().empty()) continue;
    const auto outputs = EvaluateNode(call.node(), call.opset(), call.inputs());
    ASSERT_FALSE(outputs.ok());
    EXPECT_NE(outputs.status().message().find(message), absl::string_view::npos)
        << outputs.status();
  }
}

// One dim more, one less, one element more, an empty axis: an error or a result, and nothing
// written outside either way.
TEST_P(OpTest, SurvivesWrongShapes) {
  for (const OpCase& op_case : table_.cases()) {
    SCOPED_TRACE(op_case.name);
    for (size_t i = 0; i < op_case.inputs.size(); ++i) {
      if (!op_case.inputs[i].defined() || op_case.inputs[i].size() > 4096) continue;
      std::vector<std::vector<int64_t>> wrong(1, op_case.inputs[i].dims());
      wrong[0].insert(wrong[0].begin(), 2);
      for (int axis = 0; axis < op_case.inputs[i].rank(); ++axis) {
        for (const int64_t change : {-1, 1}) {
          wrong.push_back(op_case.inputs[i].dims());
          wrong.back()[axis] = std::max<int64_t>(0, wrong.back()[axis] + change);
        }
        wrong.push_back(op_case.inputs[i].dims());
        wrong.back().erase(wrong.back().begin() + axis);
      }
      for (const std::vector<int64_t>& dims : wrong) {
        OpCase changed = op_case;
        changed.inputs[i] = *Tensor::Allocate(op_case.inputs[i].dtype(), dims);
        CaseNode call(*op_, table_, changed);
        for (const Kernel& kernel : op_->kernels()) {
          if (Supports(kernel, call, *op_)) RunGuarded(*op_, call, {&kernel}).IgnoreError();
        }
        if (op_->kernels().empty()) {
          EvaluateNode(call.node(), call.opset(), call.inputs()).IgnoreError();
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, OpTest, ::testing::ValuesIn(kOps),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace pagefuse
