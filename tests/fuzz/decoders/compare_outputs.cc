// SPDX-License-Identifier: Apache-2.0
#include "compare_outputs.h"

#include <algorithm>
#include <cmath>

#include "pagefuse/base/str_cat.h"

namespace pagefuse::fuzz {
namespace {

// What float32 sums in another order differ by is far less; what a wrong token changes is far more.
constexpr float kTolerance = 2e-3f;

// The axis of a tensor that runs over tokens, and the place among all tokens of its first one;
// -1: none.
struct TokenAxis {
  int axis = -1;
  int64_t first = 0;
};

TokenAxis FindTokenAxis(const std::vector<int64_t>& dims, const StepSizes& sizes) {
  const int64_t total = sizes.past + sizes.length;
  if (dims.empty() || dims[0] != sizes.batch) return {};
  if (dims.size() == 4) return dims[2] == total ? TokenAxis{2, 0} : TokenAxis{};
  if (dims.size() == 3 && dims[1] == sizes.length) return {1, sizes.past};
  if (dims.size() == 3 && dims[1] == 1) return {1, total - 1};
  return dims.size() == 2 && dims[1] == kVocabularySize ? TokenAxis{1, total - 1} : TokenAxis{};
}

// Whether the row that begins at `element` is that of a token, not of padding.
bool IsKept(const RandomStep& step, const std::vector<int64_t>& dims, const TokenAxis& tokens,
            int64_t element) {
  int64_t inside = 1;
  for (size_t axis = static_cast<size_t>(tokens.axis) + 1; axis < dims.size(); ++axis) {
    inside *= dims[axis];
  }
  int64_t in_batch = inside;
  for (int axis = 1; axis <= tokens.axis; ++axis) in_batch *= dims[static_cast<size_t>(axis)];
  const int64_t batch = element / in_batch;
  const int64_t total = step.sizes.past + step.sizes.length;
  const int64_t rows = dims.size() == 2 ? 1 : dims[static_cast<size_t>(tokens.axis)];
  if (rows < step.sizes.length) {
    // Which token a single row is of depends on how the mask has its padding.
    const auto first = step.kept.begin() + batch * total;
    return std::all_of(first, first + total, [](bool kept) { return kept; });
  }
  const int64_t place = element / inside % rows;
  return step.kept[static_cast<size_t>(batch * total + tokens.first + place)];
}

std::string CompareFloats(const RandomStep& step, const Tensor& expected, const Tensor& found) {
  const auto& dims = expected.dims();
  const int64_t columns = dims.empty() ? 1 : std::max<int64_t>(dims.back(), 1);
  const TokenAxis tokens = FindTokenAxis(dims, step.sizes);
  if (step.padded && tokens.axis < 0) return "";
  for (int64_t row = 0; row < expected.size(); row += columns) {
    if (step.padded && !IsKept(step, dims, tokens, row)) continue;
    const auto begin = static_cast<size_t>(row);
    const auto count = static_cast<size_t>(columns);
    const std::string difference = CompareRows(expected.values<float>().subspan(begin, count),
                                               found.values<float>().subspan(begin, count));
    if (!difference.empty()) return StrCat("row ", row / columns, ", ", difference);
  }
  return "";
}

std::string CompareTensor(const RandomStep& step, const Tensor& expected, const Tensor& found) {
  if (expected.dtype() != found.dtype()) return "expected another type";
  if (expected.dims() != found.dims()) {
    return StrCat("expected ", DimsToString(expected.dims()), ", got ", DimsToString(found.dims()));
  }
  if (expected.dtype() == DataType::kFloat) return CompareFloats(step, expected, found);
  if (step.padded || expected.IdenticalTo(found)) return "";
  return "expected other integers";
}

// The floats whose last axis an index tensor chooses from; null if there are none.
const Tensor* ChosenFrom(const Tensor& indices, const std::vector<Tensor>& outputs) {
  if (indices.dtype() != DataType::kInt64) return nullptr;
  for (const Tensor& output : outputs) {
    const auto& dims = output.dims();
    if (output.dtype() != DataType::kFloat || dims.empty()) continue;
    if (indices.size() * dims.back() != output.size()) continue;
    if (indices.dims().size() + 1 < dims.size()) continue;
    if (std::equal(dims.begin(), dims.end() - 1, indices.dims().begin())) return &output;
  }
  return nullptr;
}

// Whether both index the largest of a row of `floats`, as far as sums in another order decide. A
// row with a NaN has no largest.
bool IndexEqualFloats(const Tensor& floats, std::span<const int64_t> expected,
                      std::span<const int64_t> found) {
  const int64_t columns = floats.dims().back();
  for (size_t row = 0; row < expected.size(); ++row) {
    if (expected[row] == found[row]) continue;
    if (found[row] < 0 || found[row] >= columns) return false;
    const auto values = floats.values<float>().subspan(row * columns, columns);
    if (std::any_of(values.begin(), values.end(), [](float x) { return std::isnan(x); })) continue;
    if (!CompareRows(values.subspan(expected[row], 1), values.subspan(found[row], 1)).empty()) {
      return false;
    }
  }
  return true;
}

bool AreTies(const std::vector<Tensor>& outputs, const Tensor& expected, const Tensor& found) {
  if (expected.dtype() != found.dtype() || expected.dims() != found.dims()) return false;
  const Tensor* floats = ChosenFrom(expected, outputs);
  return floats && IndexEqualFloats(*floats, expected.values<int64_t>(), found.values<int64_t>());
}

}  // namespace

std::string CompareRows(std::span<const float> expected, std::span<const float> found) {
  if (expected.size() != found.size()) {
    return StrCat("expected ", expected.size(), " columns, got ", found.size());
  }
  float largest = 1;
  for (const float value : expected) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::isnan(expected[i]) || expected[i] == found[i]) continue;
    if (std::abs(expected[i] - found[i]) <= kTolerance * largest) continue;
    return StrCat("column ", i, ": expected ", expected[i], ", got ", found[i]);
  }
  return "";
}

absl::Status CompareOutputs(const RandomStep& step, const Model& model,
                            const std::vector<Tensor>& expected, const std::vector<Tensor>& found) {
  if (expected.size() != found.size()) {
    return absl::InvalidArgumentError(
        StrCat("expected ", expected.size(), " outputs, got ", found.size()));
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    const std::string difference = CompareTensor(step, expected[i], found[i]);
    if (difference.empty() || AreTies(expected, expected[i], found[i])) continue;
    return absl::InvalidArgumentError(
        StrCat("output \"", model.graph->outputs()[i]->name(), "\" of a step of ", step.sizes.batch,
               " x ", step.sizes.length, " tokens after ", step.sizes.past, ": ", difference));
  }
  return absl::OkStatus();
}

}  // namespace pagefuse::fuzz
