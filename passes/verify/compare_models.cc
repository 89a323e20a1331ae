// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/verify/compare_models.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/graph/compute_type.h"
#include "pagefuse/ir/tensor/machine_memory.h"
#include "pagefuse/ir/tensor/memory_budget.h"
#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/passes/edit/constants.h"

namespace pagefuse {
namespace {

constexpr int64_t kMaxCompared = int64_t{1} << 28;

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

bool Close(double a, double b, double tolerance) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) == std::isnan(b);
  if (std::isinf(a) || std::isinf(b)) return a == b;
  return std::abs(a - b) <= tolerance * (1 + std::abs(a));
}

// How many elements differ, and how many are no numbers or infinite on one side only.
struct Counts {
  int64_t differ = 0;
  int64_t nan_before = 0, nan_after = 0, inf_before = 0, inf_after = 0;
};

Counts Count(const std::vector<double>& a, const std::vector<double>& b, double tolerance) {
  Counts counts;
  for (size_t i = 0; i < a.size(); ++i) {
    counts.differ += Close(a[i], b[i], tolerance) ? 0 : 1;
    counts.nan_before += std::isnan(a[i]) ? 1 : 0;
    counts.nan_after += std::isnan(b[i]) ? 1 : 0;
    counts.inf_before += std::isinf(a[i]) ? 1 : 0;
    counts.inf_after += std::isinf(b[i]) ? 1 : 0;
  }
  return counts;
}

std::string Changed(std::string_view what, int64_t before, int64_t after) {
  return before == after ? "" : StrCat("; ", what, " ", before, " before, ", after, " after");
}

std::string Scientific(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1e", value);
  return text;
}

}  // namespace

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

Interface InterfaceOf(const Graph& graph) {
  Interface interface;
  const auto port = [](const Value* value) {
    Interface::Port port{.name = value->name(), .dtype = value->dtype()};
    if (value->shape()) port.rank = value->shape()->rank();
    return port;
  };
  for (const Value* input : graph.inputs()) interface.inputs.push_back(port(input));
  for (const Value* output : graph.outputs()) interface.outputs.push_back(port(output));
  return interface;
}

bool SameInterface(const Interface& a, const Interface& b) {
  using Port = Interface::Port;
  const auto same = [](const Port& x, const Port& y) {
    return x.name == y.name && (!x.rank || !y.rank || x.rank == y.rank);
  };
  const auto same_input = [&same](const Port& x, const Port& y) {
    return same(x, y) && x.dtype == y.dtype;
  };
  return std::ranges::equal(a.inputs, b.inputs, same_input) &&
         std::equal(a.outputs.begin(), a.outputs.end(), b.outputs.begin(), b.outputs.end(), same);
}

std::string DifferenceText(const Tensor& before, const Tensor& after, double tolerance) {
  const std::string type = std::string(DataTypeName(before.dtype()));
  if (before.dtype() != after.dtype() || before.dims() != after.dims()) {
    return StrCat("expected ", type, DimsToString(before.dims()), ", got ",
                  DataTypeName(after.dtype()), DimsToString(after.dims()));
  }
  if (before.IdenticalTo(after)) return "";  // as a rule
  const auto a = Numbers(before, kMaxCompared);
  const auto b = Numbers(after, kMaxCompared);
  if (!a.has_value() || !b.has_value()) return "its bytes differ";
  const double allowed =
      IsFloatingPoint(before.dtype()) ? ToleranceOf(before.dtype(), tolerance) : 0;
  for (size_t i = 0; i < a->size(); ++i) {
    const double x = (*a)[i];
    const double y = (*b)[i];
    if (Close(x, y, allowed)) continue;
    const Counts counts = Count(*a, *b, allowed);
    std::string how = StrCat(type, ", ", Scientific(std::abs(x - y)), " over ",
                             Scientific(allowed * (1 + std::abs(x))));
    if (!std::isfinite(x - y)) how = type;
    if (a->size() > 1) StrAppend(&how, "; ", counts.differ, " of ", a->size(), " differ");
    StrAppend(&how, Changed("NaN", counts.nan_before, counts.nan_after),
              Changed("infinite", counts.inf_before, counts.inf_after));
    return StrCat("element ", i, ": expected ", x, ", got ", y, " (", how, ")");
  }
  return "";
}

absl::Status CompareTensors(const std::string& name, const Tensor& before, const Tensor& after,
                            double tolerance) {
  const std::string difference = DifferenceText(before, after, tolerance);
  if (difference.empty()) return absl::OkStatus();
  // Without how much it is.
  return absl::InvalidArgumentError(
      StrCat("output \"", name, "\": ", difference.substr(0, difference.find(" ("))));
}

absl::StatusOr<std::string> CompareOnRandomInputs(const Model& before, const Model& after,
                                                  double tolerance) {
  if (!SameInterface(InterfaceOf(*before.graph), InterfaceOf(*after.graph))) {
    return std::string(kInterfaceChanged);
  }
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
