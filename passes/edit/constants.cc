// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/edit/constants.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"

#include "pagefuse/ir/tensor/absent_tensor.h"
#include "pagefuse/ops/kernels/numeric/dispatch.h"

namespace pagefuse {
namespace {

// Half a unit in the last place of the type's mantissa, relative; float's is far below the 1e-6 of
// the rule.
double Precision(DataType type) {
  switch (type) {
    case DataType::kFloat16:
      return 0x1p-11;
    case DataType::kBfloat16:
      return 0x1p-8;
    default:
      return IsFloat8(type) ? 0x1p-3 : 1e-6;
  }
}

template <typename T>
double DoubleOf(const T& value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<double>(value);
  } else {
    return static_cast<double>(static_cast<float>(value));
  }
}

enum class Kind { kInteger, kFloat, kBool, kOther };

Kind KindOf(DataType type) {
  if (type == DataType::kBool) return Kind::kBool;
  if (IsInteger(type)) return Kind::kInteger;
  return IsFloatingPoint(type) ? Kind::kFloat : Kind::kOther;
}

}  // namespace

std::optional<std::vector<double>> Numbers(const Tensor& tensor, int64_t max_size) {
  if (!tensor.defined() || IsAbsent(tensor) || tensor.size() > max_size) return std::nullopt;
  std::vector<double> numbers;
  numbers.reserve(tensor.size());
  const absl::Status status = DispatchType(tensor.dtype(), [&]<typename T>() {
    for (const T& value : tensor.values<T>()) numbers.push_back(DoubleOf(value));
  });
  if (!status.ok()) return std::nullopt;
  return numbers;
}

std::optional<double> ScalarNumber(const Tensor& tensor) {
  if (tensor.size() != 1) return std::nullopt;
  std::optional<std::vector<double>> numbers = Numbers(tensor, 1);
  if (!numbers.has_value()) return std::nullopt;
  return numbers->front();
}

std::optional<double> NumberOf(const Value* value) {
  const Tensor* tensor = value && value->IsConstant() ? value->initializer() : nullptr;
  return tensor ? ScalarNumber(*tensor) : std::nullopt;
}

bool NumbersEqual(double a, double b, double precision) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (a == b) return true;
  if (std::isinf(a) || std::isinf(b)) return false;
  return std::abs(a - b) <= precision * std::max(std::abs(a), std::abs(b));
}

bool ConstantNumbersEqual(const Tensor& pattern, const Tensor& graph) {
  const bool scalars = pattern.size() == 1 && graph.size() == 1;
  if (!scalars && pattern.dims() != graph.dims()) return false;
  constexpr int64_t kMaxCompared = 1 << 20;
  const auto a = Numbers(pattern, kMaxCompared);
  const auto b = Numbers(graph, kMaxCompared);
  if (!a.has_value() || !b.has_value()) return false;
  const double precision = std::max(Precision(pattern.dtype()), Precision(graph.dtype()));
  return std::equal(a->begin(), a->end(), b->begin(), b->end(),
                    [precision](double x, double y) { return NumbersEqual(x, y, precision); });
}

bool ConstantsEqual(const Tensor& pattern, const Tensor& graph) {
  if (pattern.dtype() == DataType::kString || graph.dtype() == DataType::kString) {
    return pattern.IdenticalTo(graph);
  }
  if (KindOf(pattern.dtype()) != KindOf(graph.dtype())) return false;
  return ConstantNumbersEqual(pattern, graph);
}

std::optional<double> FilledNumber(const Tensor& tensor) {
  constexpr int64_t kMaxRead = 1 << 16;
  if (!tensor.defined() || IsAbsent(tensor) || tensor.size() == 0 || tensor.size() > kMaxRead) {
    return std::nullopt;
  }
  std::optional<double> filled;
  const absl::Status status = DispatchType(tensor.dtype(), [&]<typename T>() {
    const auto values = tensor.values<T>();
    const double first = DoubleOf(values.front());
    const bool all =
        std::ranges::all_of(values, [first](const T& value) { return DoubleOf(value) == first; });
    if (all) filled = first;
  });
  return status.ok() ? filled : std::nullopt;
}

bool IsFilledWith(const Tensor& tensor, double number) {
  const bool empty = tensor.defined() && !IsAbsent(tensor) && tensor.size() == 0;
  return empty || FilledNumber(tensor) == number;
}

}  // namespace pagefuse
