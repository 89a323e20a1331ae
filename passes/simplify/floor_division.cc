// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <vector>

#include "pagefuse/passes/analysis/functions/scalar_region.h"
#include "pagefuse/passes/edit/constants.h"
#include "pagefuse/passes/simplify/arithmetic_rules.h"

namespace pagefuse {
namespace {

// Shorter than any that divides by other ops, longer than any that an exporter writes.
constexpr size_t kLeastNodes = 3, kMostNodes = 24;

bool Divides(const Node& node) {
  return node.Is("Div") || node.Is("BitShift") || node.Is("Floor") || node.Is("Mod");
}

// Sizes, and places among the elements of an axis, which a size ends.
bool IsNeverNegative(const Value* value, const SymbolicContents& contents) {
  const Node* node = value->producer();
  if (node && node->Is("TopK") && value == node->output(1)) return true;
  const auto known = KnownDims(value, contents);
  return known && std::ranges::all_of(*known, [](const Dim& dim) {
           return dim.known() && dim.offset() >= 0 &&
                  std::ranges::all_of(dim.terms(),
                                      [](const Dim::Term& term) { return term.second >= 0; });
         });
}

// The integers that the region's nodes are given.
std::set<int64_t> ConstantsOf(const ScalarRegion& region) {
  std::set<int64_t> constants;
  for (const Node* node : region.nodes) {
    for (const Value* input : node->inputs()) {
      auto number = NumberOf(input);
      // A quarter stands for what divides by 4.
      if (number && *number > 0 && *number < 1) number = 1 / *number;
      if (number && *number == std::floor(*number) && std::abs(*number) < 1e9) {
        constants.insert(static_cast<int64_t>(*number));
      }
    }
  }
  return constants;
}

// What a quotient may be of: everything near 0, near each constant and its multiples, and some far.
// Sizes are below 2^24, which floats count to.
Tensor PointsFor(const std::set<int64_t>& constants, DataType type, bool sizes) {
  constexpr int64_t kNear = 40;
  std::set<int64_t> points;
  const auto around = [&](int64_t centre, int64_t reach) {
    for (int64_t at = centre - reach; at <= centre + reach; ++at) {
      points.insert({at, -at});
    }
  };
  around(0, kNear);
  for (int64_t constant : constants) {
    for (int64_t times : {1, 2, 7}) around(constant * times, 2);
  }
  for (int64_t far : {5000, 65537, (1 << 23) + 3}) around(far, 1);
  if (!sizes) {
    around((int64_t{1} << 31) - 2, 1);
    if (type == DataType::kInt64) around((int64_t{1} << 40) + 7, 1);
  }
  std::vector<int64_t> kept;
  for (int64_t point : points) {
    const bool fits = type == DataType::kInt64 || std::abs(point) < (int64_t{1} << 31);
    if (fits && (!sizes || (point >= 0 && point < (1 << 24)))) kept.push_back(point);
  }
  const std::vector<int64_t> dims = {static_cast<int64_t>(kept.size())};
  if (type == DataType::kInt64) return Tensor::Of<int64_t>(dims, kept);
  return Tensor::Of<int32_t>(dims, {kept.begin(), kept.end()});
}

template <typename T>
bool AreQuotients(const Tensor& points, const Tensor& results, int64_t divisor) {
  const auto x = points.values<T>(), y = results.values<T>();
  for (size_t i = 0; i < x.size(); ++i) {
    const int64_t rest = (static_cast<int64_t>(x[i]) % divisor + divisor) % divisor;
    if (y[i] != (static_cast<int64_t>(x[i]) - rest) / divisor) return false;
  }
  return true;
}

// The number that the region divides by, rounding down; nullopt if it does something else.
std::optional<int64_t> DivisorOf(const ScalarRegion& region, const OpsetImports& opsets,
                                 bool sizes) {
  const DataType type = region.source->dtype();
  const bool integers = type == DataType::kInt64 || type == DataType::kInt32;
  if (!integers || region.result->dtype() != type || region.nodes.size() < kLeastNodes ||
      region.nodes.size() > kMostNodes ||
      std::ranges::none_of(region.nodes, [](const Node* node) { return Divides(*node); })) {
    return std::nullopt;
  }
  const std::set<int64_t> constants = ConstantsOf(region);
  const Tensor points = PointsFor(constants, type, sizes);
  const auto results = EvaluateRegion(region, opsets, points);
  if (!results.ok() || results->dtype() != type || results->dims() != points.dims()) {
    return std::nullopt;
  }
  constexpr int64_t kMostBits = 20;
  for (int64_t constant : constants) {
    std::vector<int64_t> divisors = {constant};
    if (constant > 0 && constant <= kMostBits) divisors.push_back(int64_t{1} << constant);
    for (int64_t divisor : divisors) {
      if (divisor < 2) continue;
      const bool same = type == DataType::kInt64 ? AreQuotients<int64_t>(points, *results, divisor)
                                                 : AreQuotients<int32_t>(points, *results, divisor);
      if (same) return divisor;
    }
  }
  return std::nullopt;
}

// The number as the nodes have it, or a new constant.
Value* DivisorFor(const ScalarRegion& region, int64_t number, Graph& graph) {
  const DataType type = region.source->dtype();
  for (const Node* node : region.nodes) {
    for (Value* input : node->inputs()) {
      const Tensor* tensor = input && input->dtype() == type ? ConstantOf(input) : nullptr;
      if (tensor && tensor->rank() == 0 && ScalarNumber(*tensor) == number) return input;
    }
  }
  Tensor scalar = type == DataType::kInt64 ? Tensor::Scalar<int64_t>(number)
                                           : Tensor::Scalar<int32_t>(static_cast<int32_t>(number));
  return graph.AddInitializer(graph.UniqueName("divisor"), std::move(scalar));
}

// (a - a mod n) / n
bool IsWritten(const ScalarRegion& region) {
  static constexpr std::string_view kOps[] = {"Mod", "Sub", "Div"};
  return std::equal(region.nodes.begin(), region.nodes.end(), std::begin(kOps), std::end(kOps),
                    [](const Node* node, std::string_view op) { return node->Is(op); });
}

}  // namespace

bool FloorDivision(Node& node, Peephole& peephole) {
  if (!IsInteger(node.output(0)->dtype())) return false;
  for (const ScalarRegion& region : ScalarRegionsOf(node.output(0), peephole.opsets())) {
    if (region.nodes.size() > kMostNodes) break;
    if (IsWritten(region) || !SameShapes(region.source, node.output(0))) continue;
    const bool size = IsNeverNegative(region.source, peephole.contents());
    const auto number = DivisorOf(region, peephole.opsets(), size);
    if (!number) continue;
    Value* a = region.source;
    Value* divisor = DivisorFor(region, *number, peephole.graph());
    if (!size) {
      Value* rest = peephole.AddNode(node, "Mod", {a, divisor});
      a = peephole.AddNode(node, "Sub", {a, rest});
    }
    return peephole.ReplaceByNode(node, "Div", {a, divisor});
  }
  return false;
}

}  // namespace pagefuse
