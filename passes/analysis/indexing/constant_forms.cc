// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/analysis/indexing/constant_forms.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "pagefuse/ops/infer/exact_integers.h"
#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/passes/edit/constants.h"

namespace pagefuse {
namespace {

// Whole numbers of which sums and products do not overflow; nullopt if some are others.
std::optional<std::vector<int64_t>> WholeNumbers(const Tensor& tensor) {
  constexpr int64_t kMostIntegers = 1 << 20, kLargest = int64_t{1} << 40;
  std::vector<int64_t> whole;
  if (IsInteger(tensor.dtype())) {
    if (tensor.size() > kMostIntegers) return std::nullopt;
    auto integers = IntegerValues(tensor);
    if (!integers.ok()) return std::nullopt;
    if (integers->size() == 1) return *std::move(integers);
    whole = *std::move(integers);
  } else {
    const auto numbers = Numbers(tensor);
    if (!numbers) return std::nullopt;
    for (const double number : *numbers) {
      if (number != std::floor(number) || std::abs(number) > kLargest) return std::nullopt;
      whole.push_back(static_cast<int64_t>(number));
    }
  }
  const auto fits = [](int64_t x) { return -kLargest <= x && x <= kLargest; };
  if (whole.empty() || !std::ranges::all_of(whole, fits)) return std::nullopt;
  return whole;
}

// `tensor[i0, i1, ..] = c + k0 * i0 + k1 * i1 ..` at `at`.
std::optional<IndexExpr> AffineConstant(const Tensor& tensor, const std::vector<IndexExpr>& at) {
  if (static_cast<int>(at.size()) != tensor.rank()) return std::nullopt;
  const auto numbers = WholeNumbers(tensor);
  if (!numbers) return std::nullopt;
  const int rank = tensor.rank();
  std::vector<int64_t> strides(rank, 1), steps(rank, 0);
  for (int axis = rank - 1; axis >= 0; --axis) {
    if (axis + 1 < rank) strides[axis] = strides[axis + 1] * tensor.dims()[axis + 1];
    if (tensor.dims()[axis] > 1) steps[axis] = (*numbers)[strides[axis]] - numbers->front();
  }
  for (size_t i = 0; i < numbers->size(); ++i) {
    int64_t expected = numbers->front();
    for (int axis = 0; axis < rank; ++axis) {
      expected += steps[axis] * (static_cast<int64_t>(i) / strides[axis] % tensor.dims()[axis]);
    }
    if (expected != (*numbers)[i]) return std::nullopt;
  }
  IndexExpr form(numbers->front());
  for (int axis = 0; axis < rank; ++axis) form = form + at[axis].Times(Dim(steps[axis]));
  return form;
}

// `tensor[i] = c + k (i / d)`, rounded down, or `c + k (i mod d)`.
std::optional<IndexExpr> DigitConstant(const Tensor& tensor, const std::vector<IndexExpr>& at) {
  if (tensor.rank() != 1 || at.size() != 1 || !IsInteger(tensor.dtype())) return std::nullopt;
  const auto numbers = IntegerValues(tensor);
  if (!numbers.ok() || numbers->empty()) return std::nullopt;
  const int64_t first = numbers->front();
  const auto count = static_cast<int64_t>(numbers->size());
  int64_t factor = 1;
  const auto all = [&](const auto& digit) {
    for (int64_t i = 0; i < count; ++i) {
      if ((*numbers)[i] != first + factor * digit(i)) return false;
    }
    return true;
  };
  // The quotient steps where it first differs, the remainder falls where it first repeats.
  int64_t step = 1, period = 1;
  while (step < count && (*numbers)[step] == first) ++step;
  while (period < count && (*numbers)[period] != first) ++period;
  if (step < count) factor = (*numbers)[step] - first;
  if (all([step](int64_t i) { return i / step; })) {
    return DivMod(at[0], Dim(step)).first.Times(Dim(factor)) + IndexExpr(first);
  }
  if (all([period](int64_t i) { return i % period; })) {
    return DivMod(at[0], Dim(period)).second.Times(Dim(factor)) + IndexExpr(first);
  }
  return std::nullopt;
}

}  // namespace

std::optional<IndexExpr> ReadConstantTensor(const Tensor& tensor,
                                            const std::vector<IndexExpr>& at) {
  const auto affine = AffineConstant(tensor, at);
  return affine ? affine : DigitConstant(tensor, at);
}

std::optional<double> AsType(double number, DataType type) {
  if (type == DataType::kBool) return number != 0 ? 1 : 0;
  if (IsInteger(type)) {
    const double whole = std::trunc(number);
    const auto held = ExactIntegers(type);
    const bool fits = held && held->least <= whole && whole <= held->most;
    return fits ? std::optional(whole) : std::nullopt;
  }
  if (type == DataType::kDouble) return number;
  if (!IsFloatingPoint(type) || BitWidth(type) < 8) return std::nullopt;
  const auto single = static_cast<float>(number);
  std::array<uint8_t, sizeof(float)> bytes = {};
  double rounded = 0;
  const bool done = EncodeFromFloat(type, &single, 1, bytes.data()).ok() &&
                    DecodeToDouble(type, bytes.data(), 1, &rounded).ok();
  return done ? std::optional(rounded) : std::nullopt;
}

}  // namespace pagefuse
