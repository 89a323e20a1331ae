// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/quantise/weights/weight_codes.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/tensor/resident_pages.h"
#include "pagefuse/ops/kernels/linalg/nbits_quantise.h"
#include "pagefuse/ops/kernels/numeric/convert.h"

namespace pagefuse {
namespace {

constexpr int64_t kLines = 64;  // rows or columns of a unit of work

class Quantiser {
 public:
  Quantiser(const WeightMatrix& matrix, int bits, WeightCodes& to, std::vector<float>& scales)
      : matrix_(matrix),
        bits_(bits),
        blocks_((matrix.k() + kWeightBlock - 1) / kWeightBlock),
        codes_(static_cast<uint8_t*>(to.codes.mutable_data())),
        scales_(scales.data()) {}

  void Run() {
    const int64_t tasks = (matrix_.n() + kLines - 1) / kLines;
    ParallelTasks(matrix_.count() * tasks, [&](int64_t task) {
      const int64_t index = task / tasks;
      const int64_t first = task % tasks * kLines;
      const int64_t end = std::min(first + kLines, matrix_.n());
      matrix_.columns_sum ? Rows(index, first, end) : Columns(index, first, end);
    });
  }

 private:
  // `first` counts from the start of the matrix.
  void Decode(int64_t index, int64_t first, int64_t count, float* to) const {
    const int width = BitWidth(matrix_.tensor->dtype()) / 8;
    const auto* from = static_cast<const std::byte*>(matrix_.tensor->data()) +
                       (index * matrix_.n() * matrix_.k() + first) * width;
    DecodeToFloat(matrix_.tensor->dtype(), from, count, to).IgnoreError();  // a float type
  }

  NBitsBlocks At(int64_t index, int64_t n, int64_t block) const {
    const int64_t bytes = kWeightBlock * bits_ / 8;
    const int64_t row = index * matrix_.n() + n;
    return {.codes = codes_ + (row * blocks_ + block) * bytes,
            .code_stride = bytes,
            .scales = scales_ + row * blocks_ + block,
            .scale_stride = 1};
  }

  void Rows(int64_t index, int64_t first, int64_t end) const {
    std::vector<float> row(static_cast<size_t>(blocks_ * kWeightBlock));
    for (int64_t n = first; n < end; ++n) {
      Decode(index, n * matrix_.k(), matrix_.k(), row.data());
      QuantiseNBits(row.data(), blocks_, bits_, At(index, n, 0));
    }
  }

  // A block of each column at a time: what is read lies in runs.
  void Columns(int64_t index, int64_t first, int64_t end) const {
    float run[kLines];
    std::vector<float> patch(kLines * kWeightBlock);
    for (int64_t b = 0; b < blocks_; ++b) {
      std::fill(patch.begin(), patch.end(), 0.0f);
      for (int64_t i = 0; i < std::min(kWeightBlock, matrix_.k() - b * kWeightBlock); ++i) {
        Decode(index, (b * kWeightBlock + i) * matrix_.n() + first, end - first, run);
        for (int64_t c = 0; c < end - first; ++c) patch[c * kWeightBlock + i] = run[c];
      }
      NBitsBlocks to = At(index, first, b);
      to.code_stride *= blocks_;
      to.scale_stride = blocks_;
      QuantiseNBits(patch.data(), end - first, bits_, to);
    }
  }

  const WeightMatrix& matrix_;
  const int bits_;
  const int64_t blocks_;
  uint8_t* const codes_;
  float* const scales_;
};

}  // namespace

absl::StatusOr<WeightCodes> QuantiseMatrix(const WeightMatrix& matrix, int bits) {
  const int64_t blocks = (matrix.k() + kWeightBlock - 1) / kWeightBlock;
  const Tensor& tensor = *matrix.tensor;
  WeightCodes to;
  std::vector<int64_t> dims = {matrix.n(), blocks};
  if (matrix.is_stack()) dims.insert(dims.begin(), matrix.count());
  PF_ASSIGN_OR_RETURN(to.scales, Tensor::Allocate(tensor.dtype(), dims));
  dims.push_back(kWeightBlock * bits / 8);
  PF_ASSIGN_OR_RETURN(to.codes, Tensor::Allocate(DataType::kUint8, dims));
  std::vector<float> scales(static_cast<size_t>(to.scales.size()));
  Quantiser(matrix, bits, to, scales).Run();
  ReleasePages(*tensor.buffer(), tensor.data(), static_cast<size_t>(tensor.byte_size()));
  if (std::ranges::any_of(scales, [](float s) { return std::isnan(s); })) {
    return absl::InvalidArgumentError("expected numbers, got NaN or infinity");
  }
  PF_RETURN_IF_ERROR(
      EncodeFromFloat(tensor.dtype(), scales.data(), to.scales.size(), to.scales.mutable_data()));
  return to;
}

}  // namespace pagefuse
