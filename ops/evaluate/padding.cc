// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/evaluate/padding.h"

#include <algorithm>
#include <cstring>

namespace pagefuse {
namespace {

int64_t Product(const std::vector<int64_t>& dims, int begin, int end) {
  int64_t product = 1;
  for (int i = begin; i < end; ++i) product *= dims[i];
  return product;
}

}  // namespace

Padding::Padding(const std::map<std::string, Tensor>& feeds) {
  const auto ids = feeds.find("input_ids"), mask = feeds.find("attention_mask");
  if (ids == feeds.end() || mask == feeds.end()) return;
  const std::vector<int64_t>& id_dims = ids->second.dims();
  const std::vector<int64_t>& mask_dims = mask->second.dims();
  const auto values = IntegerValues(mask->second);
  if (!values.ok() || id_dims.size() != 2 || mask_dims.size() != 2 || id_dims[0] != mask_dims[0] ||
      id_dims[1] > mask_dims[1]) {
    return;
  }
  batch_ = mask_dims[0];
  total_ = mask_dims[1];
  length_ = id_dims[1];
  for (const int64_t value : *values) hidden_.push_back(value == 0);
}

int64_t Padding::count() const { return std::count(hidden_.begin(), hidden_.end(), true); }

int Padding::AxisOfTokens(const Value& output, const std::vector<int64_t>& dims) const {
  std::vector<int> open, fixed;
  for (int axis = 1; axis < static_cast<int>(dims.size()); ++axis) {
    if (dims[axis] != total_ && dims[axis] != length_) continue;
    const bool known = output.shape() && output.shape()->rank() == static_cast<int>(dims.size()) &&
                       (*output.shape())[axis].is_constant();
    (known ? fixed : open).push_back(axis);
  }
  const std::vector<int>& candidates = open.empty() ? fixed : open;
  return candidates.size() == 1 ? candidates[0] : -1;
}

Tensor Padding::Blank(const Value& output, const Tensor& tensor) const {
  const std::vector<int64_t>& dims = tensor.dims();
  const int bits = BitWidth(tensor.dtype());
  if (count() == 0 || bits < 8 || dims.size() < 2 || dims[0] != batch_) return tensor;
  const int axis = AxisOfTokens(output, dims);
  absl::StatusOr<Tensor> copy = axis < 0 ? tensor : tensor.Clone();
  if (axis < 0 || !copy.ok()) return tensor;
  const int64_t between = Product(dims, 1, axis);
  const int64_t row = Product(dims, axis + 1, static_cast<int>(dims.size())) * bits / 8;
  const int64_t first = total_ - dims[axis];  // rows are the last columns of the mask
  auto* bytes = static_cast<std::byte*>(copy->mutable_data());
  for (int64_t b = 0; b < batch_; ++b) {
    for (int64_t i = 0; i < dims[axis]; ++i) {
      if (!hidden_[b * total_ + first + i]) continue;
      for (int64_t k = 0; k < between; ++k) {
        std::memset(bytes + ((b * between + k) * dims[axis] + i) * row, 0, row);
      }
    }
  }
  return *std::move(copy);
}

}  // namespace pagefuse
