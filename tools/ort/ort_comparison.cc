// SPDX-License-Identifier: Apache-2.0
#include "tools/ort/ort_comparison.h"

#include <algorithm>
#include <cmath>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/numeric/convert.h"

namespace pagefuse::tools {
namespace {

// Share of bytes of codes that may be the neighbour of what they are here.
constexpr double kRoundedApart = 1e-3;
// Of floats; where a code is a step apart; and of graphs that compute in 16 bits.
constexpr double kTolerance = 1e-5;
constexpr double kToleranceOfRounding = 5e-3;
constexpr double kToleranceOfHalf = 1e-2;

}  // namespace

absl::Status OrtComparison::Add(const std::string& name, const Tensor& ours, const Tensor& theirs) {
  if (ours.dtype() != theirs.dtype() || ours.dims() != theirs.dims()) {
    return absl::InvalidArgumentError(StrCat(
        "output \"", name, "\": expected ", DataTypeName(ours.dtype()), DimsToString(ours.dims()),
        ", got ", DataTypeName(theirs.dtype()), DimsToString(theirs.dims())));
  }
  ++outputs_;
  if (!IsFloatingPoint(ours.dtype()) || IsFloat8(ours.dtype())) {
    code_bytes_ += ours.byte_size();
    const auto* a = static_cast<const uint8_t*>(ours.data());
    const auto* b = static_cast<const uint8_t*>(theirs.data());
    for (int64_t i = 0; i < ours.byte_size(); ++i) different_codes_ += a[i] != b[i] ? 1 : 0;
    return absl::OkStatus();
  }
  std::vector<double> numbers(ours.size()), others(ours.size());
  PF_RETURN_IF_ERROR(DecodeToDouble(ours.dtype(), ours.data(), ours.size(), numbers.data()));
  PF_RETURN_IF_ERROR(DecodeToDouble(ours.dtype(), theirs.data(), ours.size(), others.data()));
  double scale = 1;
  for (const double x : numbers) scale = std::max(scale, std::abs(x));
  is_half_ = is_half_ || ours.dtype() != DataType::kFloat;
  for (int64_t i = 0; i < ours.size(); ++i) {
    const double a = numbers[i], b = others[i];
    const double difference = std::isnan(a) && std::isnan(b) ? 0 : std::abs(a - b) / scale;
    if (difference <= largest_) continue;
    largest_ = std::isnan(difference) ? INFINITY : difference;
    worst_ = name;
  }
  return absl::OkStatus();
}

absl::Status OrtComparison::Add(const std::vector<std::string>& names,
                                const std::vector<Tensor>& ours,
                                const std::vector<Tensor>& theirs) {
  for (size_t i = 0; i < names.size(); ++i) {
    PF_RETURN_IF_ERROR(Add(names[i], ours[i], theirs[i]));
  }
  return absl::OkStatus();
}

double OrtComparison::tolerance() const {
  if (is_half_) return kToleranceOfHalf;
  return different_codes_ > 0 ? kToleranceOfRounding : kTolerance;
}

bool OrtComparison::equal() const {
  return largest_ <= tolerance() &&
         static_cast<double>(different_codes_) <= kRoundedApart * code_bytes_;
}

absl::Status OrtComparison::Check() const {
  if (equal()) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat("outputs differ: floats by ", largest_, " of at most ",
                                           tolerance(), " (\"", worst_, "\"), ", different_codes_,
                                           " of ", code_bytes_, " bytes of codes"));
}

}  // namespace pagefuse::tools
