// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/analysis/indexing/constant_band.h"

#include <algorithm>
#include <vector>

#include "pagefuse/ir/tensor/absent_tensor.h"
#include "pagefuse/ops/kernels/numeric/convert.h"

namespace pagefuse {
namespace {

// Larger constants are no masks that somebody wrote into a model.
constexpr int64_t kLargest = int64_t{1} << 26;

// The elements of a constant that somebody may have written into a model as a mask.
std::optional<std::vector<double>> Elements(const Tensor& tensor) {
  if (tensor.size() > kLargest || IsAbsent(tensor)) return std::nullopt;
  std::vector<double> values(static_cast<size_t>(tensor.size()));
  const absl::Status decoded =
      DecodeToDouble(tensor.dtype(), tensor.data(), tensor.size(), values.data());
  return decoded.ok() ? std::optional(std::move(values)) : std::nullopt;
}

// The first visible key of a row, and the one behind the last; nullopt if there are several runs.
struct Run {
  int64_t first = 0, end = 0;
};

std::optional<Run> RunOf(const double* row, int64_t keys, const Shows& shows) {
  Run run{keys, keys};
  for (int64_t j = 0; j < keys; ++j) {
    const std::optional<bool> seen = shows(row[j]);
    if (!seen) return std::nullopt;
    if (*seen) {
      if (run.first == keys) run.first = j;
      if (run.end != keys) return std::nullopt;
    } else if (run.first != keys && run.end == keys) {
      run.end = j;
    }
  }
  return run;
}

// The offset that all limits have from their rows, where they are not those of the constant.
class Offset {
 public:
  void Add(int64_t row, int64_t limit, bool at_edge) {
    if (at_edge) {
      edges_.push_back({row, limit});
      return;
    }
    if (offset_ && *offset_ != limit - row) fits_ = false;
    offset_ = limit - row;
  }
  // Whether rows that reach the edge would reach it by the offset too.
  template <typename Reaches>
  bool Fits(Reaches reaches) const {
    return fits_ && (!offset_ || std::all_of(edges_.begin(), edges_.end(), [&](const auto& edge) {
             return reaches(edge.first + *offset_, edge.second);
           }));
  }
  std::optional<int64_t> value() const { return offset_; }

 private:
  std::optional<int64_t> offset_;
  std::vector<std::pair<int64_t, int64_t>> edges_;
  bool fits_ = true;
};

}  // namespace

std::optional<Band> ReadBand(const Tensor& mask, const Shows& shows) {
  const std::vector<int64_t>& dims = mask.dims();
  if (dims.size() < 2 || mask.size() == 0) return std::nullopt;
  const int64_t queries = dims[dims.size() - 2], keys = dims.back();
  if (mask.size() != queries * keys) return std::nullopt;
  const auto values = Elements(mask);
  if (!values) return std::nullopt;
  Offset upper, lower;
  for (int64_t i = 0; i < queries; ++i) {
    const auto run = RunOf(values->data() + i * keys, keys, shows);
    if (!run || run->first == keys) return std::nullopt;
    upper.Add(i, run->end - 1, run->end == keys);
    lower.Add(i, run->first, run->first == 0);
  }
  const bool fits = upper.Fits([&](int64_t limit, int64_t last) { return limit >= last; }) &&
                    lower.Fits([](int64_t limit, int64_t) { return limit <= 0; });
  if (!fits) return std::nullopt;
  return Band{upper.value(), lower.value()};
}

bool HoldsUnits(const Tensor& tensor) {
  const auto values = Elements(tensor);
  return values && std::ranges::all_of(*values, [](double x) { return x == 0 || x == 1; });
}

}  // namespace pagefuse
