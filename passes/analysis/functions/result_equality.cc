// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/analysis/functions/result_equality.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/passes/edit/match_failure.h"

namespace pagefuse {
namespace {

bool IsCode(DataType type) { return type == DataType::kUint8 || type == DataType::kFloat8E4M3FN; }

bool SameNibble(int a, int b) { return a == b || ((a & 7) == 0 && (b & 7) == 0); }

bool SameCode(uint8_t a, uint8_t b, bool packed) {
  if (a == b) return true;
  if (packed) return SameNibble(a & 15, b & 15) && SameNibble(a >> 4, b >> 4);
  return (a & 0x7F) == 0 && (b & 0x7F) == 0;
}

// The elements as numbers: codes as their bytes.
std::vector<double> NumbersOf(const Tensor& tensor) {
  std::vector<double> numbers(tensor.size());
  if (IsCode(tensor.dtype())) {
    const auto* bytes = static_cast<const uint8_t*>(tensor.data());
    std::copy(bytes, bytes + tensor.size(), numbers.begin());
  } else {
    DecodeToDouble(tensor.dtype(), tensor.data(), tensor.size(), numbers.data()).IgnoreError();
  }
  return numbers;
}

class Comparison {
 public:
  Comparison(const ResultRule& rule, const Tensor& expected, const Tensor& found,
             const Tensor& before)
      : rule_(rule),
        type_(expected.dtype()),
        expected_(NumbersOf(expected)),
        found_(NumbersOf(found)) {
    if (before.defined()) before_ = NumbersOf(before);
    row_ = expected.rank() == 0 ? 1 : std::max<int64_t>(expected.dims().back(), 1);
    places_.resize(row_);
  }

  absl::Status Run() {
    int64_t column = -1;  // counted: a division for every element takes longer than the rest
    for (size_t i = 0; i < expected_.size(); ++i) {
      column = column + 1 == row_ ? 0 : column + 1;
      const bool written = before_.empty() || before_[i] != expected_[i];
      written_ += written ? 1 : 0;
      Place& place = places_[column];
      place.written += written ? 1 : 0;
      unequal_ += expected_[i] != found_[i] && !std::isnan(found_[i]) ? 1 : 0;
      if (Same(i)) continue;
      if (first_ < 0) first_ = static_cast<int64_t>(i);
      const int64_t row = static_cast<int64_t>(i) / row_;
      rows_ += row != last_row_ ? 1 : 0;
      last_row_ = row;
      ++place.differing;
      ++differing_;
    }
    if (written_ == 0) return MatchFailure("nothing is written");
    const double all_rows = static_cast<double>(expected_.size()) / static_cast<double>(row_);
    const bool few = differing_ <= rule_.share * static_cast<double>(written_) && AreSpread() &&
                     unequal_ <= rule_.unequal * static_cast<double>(expected_.size());
    const bool few_rows = before_.empty() && rows_ <= rule_.rows * all_rows;
    if (few || few_rows) return absl::OkStatus();
    if (first_ < 0) {
      return MatchFailure(unequal_, " of ", expected_.size(),
                          " elements are near the op's, but not equal");
    }
    return MatchFailure("at element ", first_, " it gives ", found_[first_], ", the op ",
                        expected_[first_], " (", differing_, " of ", written_, " differ)");
  }

 private:
  // The elements at one place of all rows.
  struct Place {
    int64_t written = 0, differing = 0;
  };

  // Rounding differs anywhere; what differs again and again at one place is computed otherwise.
  bool AreSpread() const {
    constexpr int64_t kRowsPerDifference = 4;
    return std::all_of(places_.begin(), places_.end(), [](const Place& place) {
      return place.differing <= std::max<int64_t>(place.written / kRowsPerDifference, 1);
    });
  }

  bool Same(size_t i) const {
    const double a = expected_[i], b = found_[i];
    if (a == b || (std::isnan(b) && (std::isnan(a) || rule_.nan))) return true;
    if (IsCode(type_)) {
      return SameCode(static_cast<uint8_t>(a), static_cast<uint8_t>(b), rule_.packed_codes);
    }
    return std::abs(a - b) <= rule_.relative * std::max(std::abs(a), std::abs(b)) ||
           (rule_.of_largest > 0 && std::abs(a - b) <= rule_.of_largest * LargestOfRow(i));
  }

  double LargestOfRow(size_t i) const {
    const size_t begin = i / row_ * row_;
    double largest = 0;
    for (size_t k = begin; k < begin + row_; ++k) {
      largest = std::max(largest, std::abs(expected_[k]));
    }
    return largest;
  }

  const ResultRule& rule_;
  DataType type_;
  std::vector<double> expected_, found_, before_;
  std::vector<Place> places_;
  int64_t row_ = 1;
  int64_t written_ = 0, differing_ = 0, unequal_ = 0, rows_ = 0, last_row_ = -1, first_ = -1;
};

}  // namespace

absl::Status CompareResults(const ResultRule& rule, const Tensor& expected, const Tensor& found,
                            const Tensor& before) {
  if (expected.dtype() != found.dtype() || expected.dims() != found.dims()) {
    return MatchFailure("it gives ", DataTypeName(found.dtype()), DimsToString(found.dims()),
                        ", the op ", DataTypeName(expected.dtype()), DimsToString(expected.dims()));
  }
  const auto same_bytes = [&](const Tensor& other) {
    return other.defined() && std::memcmp(expected.data(), other.data(), expected.byte_size()) == 0;
  };
  // Caches are large, and mostly agree.
  if (same_bytes(found) && !same_bytes(before)) return absl::OkStatus();
  return Comparison(rule, expected, found, before).Run();
}

}  // namespace pagefuse
