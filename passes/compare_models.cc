#include "pagefuse/passes/compare_models.h"

#include <algorithm>
#include <cmath>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/compute_type.h"
#include "pagefuse/ir/machine_memory.h"
#include "pagefuse/ir/memory_budget.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/ops/evaluate.h"
#include "pagefuse/passes/constants.h"
#include "pagefuse/passes/pipeline.h"

namespace pagefuse {
namespace {

// Steps between neighbouring numbers of a narrow type are larger than any tolerance for float.
double ToleranceOf(DataType type, double tolerance) {
  switch (type) {
    case DataType::kFloat16:
      return std::max(tolerance, 2e-3);
    case DataType::kBfloat16:
      return std::max(tolerance, 1.6e-2);
    default:
      return IsFloat8(type) ? std::max(tolerance, 0.13) : tolerance;
  }
}

// The tolerance by the type that a model computes in, whatever float its outputs are.
double ModelTolerance(const Model& model, double tolerance) {
  // double has 29 bits more than float, some of which are left to the order of sums.
  constexpr double kDouble = 0x1p-20;
  // Every node rounds to 16 bits: a decoder adds up what a few nodes do not.
  constexpr int64_t kFewNodes = 16;
  constexpr double kManyRoundings = 5;
  const DataType type = ComputeType(*model.graph);
  if (type == DataType::kDouble) return tolerance * kDouble;
  const bool half = type == DataType::kFloat16 || type == DataType::kBfloat16;
  const bool many = half && model.graph->num_nodes() > kFewNodes;
  return ToleranceOf(type, tolerance) * (many ? kManyRoundings : 1);
}

bool Close(double a, double b, double tolerance) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) == std::isnan(b);
  if (std::isinf(a) || std::isinf(b)) return a == b;
  return std::abs(a - b) <= tolerance * (1 + std::abs(a));
}

// Names and, where both are known, ranks: a pass may say of an output that it is another tensor
// now.
bool SameInterface(const Model& a, const Model& b) {
  const auto same = [](const Value* x, const Value* y) {
    if (x->name() != y->name()) return false;
    return !x->shape() || !y->shape() || x->shape()->rank() == y->shape()->rank();
  };
  const auto all_same = [&](const std::vector<Value*>& x, const std::vector<Value*>& y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), same);
  };
  return all_same(a.graph->inputs(), b.graph->inputs()) &&
         all_same(a.graph->outputs(), b.graph->outputs());
}

}  // namespace

absl::Status CompareTensors(const std::string& name, const Tensor& before, const Tensor& after,
                            double tolerance) {
  const auto differs = [&](std::string_view what) {
    return absl::InvalidArgumentError(StrCat("output \"", name, "\": ", what));
  };
  if (before.dtype() != after.dtype() || before.dims() != after.dims()) {
    return differs(StrCat("expected ", DataTypeName(before.dtype()), DimsToString(before.dims()),
                          ", got ", DataTypeName(after.dtype()), DimsToString(after.dims())));
  }
  constexpr int64_t kMaxCompared = int64_t{1} << 28;
  const auto a = Numbers(before, kMaxCompared);
  const auto b = Numbers(after, kMaxCompared);
  if (!a.has_value() || !b.has_value()) {
    return before.IdenticalTo(after) ? absl::OkStatus() : differs("its bytes differ");
  }
  const double allowed =
      IsFloatingPoint(before.dtype()) ? ToleranceOf(before.dtype(), tolerance) : 0;
  for (size_t i = 0; i < a->size(); ++i) {
    if (Close((*a)[i], (*b)[i], allowed)) continue;
    return differs(StrCat("element ", i, ": expected ", (*a)[i], ", got ", (*b)[i]));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> CompareOnRandomInputs(const Model& before, const Model& after,
                                                  double tolerance) {
  if (!SameInterface(before, after)) return std::string("inputs or outputs changed");
  const double allowed =
      std::max(ModelTolerance(before, tolerance), ModelTolerance(after, tolerance));
  const MemoryBudgetScope scope(std::make_shared<MemoryBudget>(DefaultMemoryBytes()));
  std::string reason;
  for (int attempt = 0; attempt < kFeedAttempts; ++attempt) {
    const auto feeds = RandomFeeds(before, attempt);
    if (!feeds.ok()) return std::string(feeds.status().message());
    const auto expected = EvaluateModel(before, *feeds);
    if (!expected.ok()) {
      reason = std::string(expected.status().message());
      continue;
    }
    PF_ASSIGN_OR_RETURN(const std::vector<Tensor> got, EvaluateModel(after, *feeds));
    for (size_t i = 0; i < expected->size(); ++i) {
      PF_RETURN_IF_ERROR(
          CompareTensors(before.graph->outputs()[i]->name(), (*expected)[i], got[i], allowed));
    }
    return std::string(kVerifiedEqual);
  }
  return reason;
}

}  // namespace pagefuse
