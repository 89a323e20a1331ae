// SPDX-License-Identifier: Apache-2.0
#include "tools/check/compare.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/numeric/convert.h"

namespace pagefuse {
namespace {

// "[1, 0, 3]", the place of element `index` of a dense tensor.
std::string PlaceOf(const Tensor& tensor, int64_t index) {
  std::vector<int64_t> place(tensor.rank());
  for (int axis = tensor.rank() - 1; axis >= 0; --axis) {
    place[axis] = index % tensor.dims()[axis];
    index /= tensor.dims()[axis];
  }
  return DimsToString(place);
}

// Counts differing elements and remembers the first.
class Differences {
 public:
  explicit Differences(const Tensor& tensor) : tensor_(tensor) {}

  void Add(int64_t index, const std::string& want, const std::string& got) {
    if (count_++ == 0) {
      first_ = absl::StrCat("at ", PlaceOf(tensor_, index), ": expected ", want, ", got ", got);
    }
  }
  int64_t count() const { return count_; }
  absl::Status ToStatus() const {
    if (count_ == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(first_, " (", count_, " of ", tensor_.size(), " elements differ)"));
  }

 private:
  const Tensor& tensor_;
  int64_t count_ = 0;
  std::string first_;
};

absl::StatusOr<std::vector<double>> Doubles(const Tensor& tensor) {
  std::vector<double> values(tensor.size());
  PF_RETURN_IF_ERROR(DecodeToDouble(tensor.dtype(), tensor.data(), tensor.size(), values.data()));
  return values;
}

std::string Number(double value) { return absl::StrCat(value); }

absl::Status CompareStrings(const Tensor& got, const Tensor& want) {
  Differences differences(want);
  for (int64_t i = 0; i < want.size(); ++i) {
    if (got.strings()[i] == want.strings()[i]) continue;
    differences.Add(i, absl::StrCat("\"", want.strings()[i], "\""),
                    absl::StrCat("\"", got.strings()[i], "\""));
  }
  return differences.ToStatus();
}

absl::Status CompareBytes(const Tensor& got, const Tensor& want) {
  if (want.dtype() == DataType::kString) return CompareStrings(got, want);
  const auto* a = static_cast<const uint8_t*>(got.data());
  const auto* b = static_cast<const uint8_t*>(want.data());
  const int bits = BitWidth(want.dtype());
  Differences differences(want);
  for (int64_t i = 0; i < want.size(); ++i) {
    const int64_t begin = i * bits / 8;
    const int64_t bytes = std::max(bits / 8, 1);
    if (std::memcmp(a + begin, b + begin, bytes) == 0) continue;
    double numbers[2];
    // A packed pair is shown by its first element; types without numbers fail above.
    PF_RETURN_IF_ERROR(DecodeToDouble(want.dtype(), b + begin, 1, &numbers[0]));
    PF_RETURN_IF_ERROR(DecodeToDouble(want.dtype(), a + begin, 1, &numbers[1]));
    const auto show = [&](double number, const uint8_t* p) {
      return absl::StrCat(number, " (0x", absl::Hex(p[begin], absl::kZeroPad2), " first byte)");
    };
    differences.Add(i, show(numbers[0], b), show(numbers[1], a));
  }
  return differences.ToStatus();
}

bool IsClose(const CompareRule& rule, double got, double want) {
  if (rule.finite_only && !std::isfinite(want)) return true;
  if (std::isnan(want) || std::isnan(got)) {
    return rule.nan_is_equal && std::isnan(want) && std::isnan(got);
  }
  if (std::isinf(want) || std::isinf(got)) return want == got;
  return std::fabs(got - want) <= rule.atol + rule.rtol * std::fabs(want);
}

absl::Status CompareClose(const CompareRule& rule, const Tensor& got, const Tensor& want) {
  PF_ASSIGN_OR_RETURN(const std::vector<double> a, Doubles(got));
  PF_ASSIGN_OR_RETURN(const std::vector<double> b, Doubles(want));
  Differences differences(want);
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    if (!IsClose(rule, a[i], b[i])) differences.Add(i, Number(b[i]), Number(a[i]));
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) continue;
    error += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  PF_RETURN_IF_ERROR(differences.ToStatus());
  if (!rule.rel_l2 || std::sqrt(error) <= *rule.rel_l2 * std::sqrt(norm)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("relative error in the 2-norm is ",
                                                 std::sqrt(error / norm), ", over ", *rule.rel_l2));
}

// Codes of 16-bit floats as integers in the order of their values; both zeros are 0.
int64_t OrderOf(uint16_t code) { return code & 0x8000 ? -(code & 0x7FFF) : code; }

absl::Status CompareUlp(const CompareRule& rule, const Tensor& got, const Tensor& want) {
  const bool half = want.dtype() == DataType::kFloat16;
  if (!half && want.dtype() != DataType::kBfloat16) {
    return absl::InvalidArgumentError("the rule ulp is for float16 and bfloat16");
  }
  const int64_t infinity = half ? 0x7C00 : 0x7F80;
  const auto a = got.values<uint16_t>();
  const auto b = want.values<uint16_t>();
  PF_ASSIGN_OR_RETURN(const std::vector<double> got_values, Doubles(got));
  PF_ASSIGN_OR_RETURN(const std::vector<double> want_values, Doubles(want));
  Differences differences(want);
  int64_t unequal = 0;
  for (int64_t i = 0; i < want.size(); ++i) {
    const bool got_nan = (a[i] & 0x7FFF) > infinity, want_nan = (b[i] & 0x7FFF) > infinity;
    if (rule.nan_is_equal && got_nan && want_nan) continue;
    const int64_t distance = std::abs(OrderOf(a[i]) - OrderOf(b[i]));
    if (got_nan || want_nan || distance > rule.max_ulp) {
      differences.Add(i, Number(want_values[i]), Number(got_values[i]));
    }
    unequal += distance != 0;
  }
  PF_RETURN_IF_ERROR(differences.ToStatus());
  if (static_cast<double>(unequal) <= rule.max_fraction * static_cast<double>(want.size())) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      unequal, " of ", want.size(), " elements differ, over the fraction ", rule.max_fraction));
}

absl::Status CompareInt4Scales(const CompareRule& rule, const Tensor& got, const Tensor& want) {
  if (want.dtype() != DataType::kFloat) {
    return absl::InvalidArgumentError("the rule int4_scale is for float");
  }
  Differences differences(want);
  for (int64_t i = 0; i < want.size(); ++i) {
    const uint32_t a = std::bit_cast<uint32_t>(got.values<float>()[i]);
    const uint32_t b = std::bit_cast<uint32_t>(want.values<float>()[i]);
    if (a == b) continue;
    const double got_scale = std::bit_cast<float>(a & ~15u);
    const double want_scale = std::bit_cast<float>(b & ~15u);
    const bool close = std::fabs(got_scale - want_scale) <= rule.rtol * std::fabs(want_scale);
    if ((a & 15) == (b & 15) && close) continue;
    differences.Add(i, absl::StrCat(want_scale, " with zero point ", b & 15),
                    absl::StrCat(got_scale, " with zero point ", a & 15));
  }
  return differences.ToStatus();
}

absl::Status CompareRows(const Tensor& got, const Tensor& want) {
  PF_ASSIGN_OR_RETURN(const std::vector<int64_t> a, IntegerValues(got));
  PF_ASSIGN_OR_RETURN(const std::vector<int64_t> b, IntegerValues(want));
  const int64_t width = want.rank() == 0 ? 1 : want.dims().back();
  for (int64_t start = 0; start < want.size(); start += width) {
    const auto begin = a.begin() + start;
    const auto used = std::find(begin, begin + width, -1);
    if (std::any_of(used, begin + width, [](int64_t index) { return index != -1; })) {
      return absl::InvalidArgumentError(
          absl::StrCat("row at ", PlaceOf(want, start), ": -1 is not at the end alone"));
    }
    if (std::multiset<int64_t>(begin, begin + width) ==
        std::multiset<int64_t>(b.begin() + start, b.begin() + start + width)) {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("row at ", PlaceOf(want, start), ": not the same set of indices"));
  }
  return absl::OkStatus();
}

bool IsHalf(DataType type) { return type == DataType::kFloat16 || type == DataType::kBfloat16; }

}  // namespace

CompareRule DefaultRule(DataType type) {
  CompareRule rule;
  if (!IsFloatingPoint(type)) return rule;
  rule.nan_is_equal = true;
  if (IsHalf(type)) {
    rule.kind = CompareRule::Kind::kUlp;
    rule.max_ulp = 2;  // what two orders of rounding differ by
    return rule;
  }
  rule.kind = CompareRule::Kind::kAllclose;
  rule.rtol = 1e-3;
  rule.atol = 1e-7;
  return rule;
}

CompareRule GraphRule(DataType type, DataType computed) {
  if (!IsFloatingPoint(type) || !IsHalf(computed)) return DefaultRule(type);
  CompareRule rule;
  rule.kind = CompareRule::Kind::kAllclose;
  rule.nan_is_equal = true;
  // Every node rounds, and another order of the same sums rounds otherwise: whole float16 decoders
  // differ by up to 1e-2 from each other where the float32 result lies between them. bfloat16 has
  // three bits less. Two units in the last place for what is larger than 1.
  const bool half = computed == DataType::kFloat16;
  rule.atol = half ? 1e-2 : 8e-2;
  rule.rtol = half ? 0x1p-9 : 0x1p-6;
  return rule;
}

absl::Status CompareTensors(const CompareRule& rule, const Tensor& got, const Tensor& want) {
  if (got.dtype() != want.dtype()) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected type ", std::string(DataTypeName(want.dtype())), ", got ",
                     std::string(DataTypeName(got.dtype()))));
  }
  if (got.dims() != want.dims()) {
    return absl::InvalidArgumentError(absl::StrCat("expected shape ", DimsToString(want.dims()),
                                                   ", got ", DimsToString(got.dims())));
  }
  switch (rule.kind) {
    case CompareRule::Kind::kBytes:
      return CompareBytes(got, want);
    case CompareRule::Kind::kAllclose:
      return CompareClose(rule, got, want);
    case CompareRule::Kind::kUlp:
      return CompareUlp(rule, got, want);
    case CompareRule::Kind::kInt4Scale:
      return CompareInt4Scales(rule, got, want);
    case CompareRule::Kind::kRowsAsSets:
      return CompareRows(got, want);
  }
  return absl::InternalError("no such rule");
}

}  // namespace pagefuse
