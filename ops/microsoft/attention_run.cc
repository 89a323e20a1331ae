// com.microsoft.Attention computed: the projection, then MultiHeadAttention over its parts.
#include <algorithm>
#include <cmath>
#include <vector>

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/microsoft/attention.h"
#include "pagefuse/ops/microsoft/head_rows.h"
#include "pagefuse/ops/microsoft/multi_head_attention.h"
#include "pagefuse/ops/microsoft/tensor_values.h"
#include "pagefuse/ops/onnx/product.h"

namespace pagefuse::microsoft_ops {
namespace {

// Behind the ones that MultiHeadAttention uses.
enum ScratchSlot { kProjected = 8, kQueryRows, kKeyRows, kValueRows, kSeen };

using RunFn = absl::Status (*)(KernelArgs&);
using ProductFn = absl::Status (*)(KernelArgs&, const ProductSpec&);

TensorArg FloatTensor(const FloatValues& values, const std::vector<int64_t>& dims) {
  return {DataType::kFloat, dims, const_cast<float*>(values.data())};
}

TensorArg ScratchFloats(KernelArgs& args, std::vector<int64_t> dims, int slot) {
  TensorArg tensor{DataType::kFloat, std::move(dims), nullptr};
  tensor.data = args.scratch->Get(static_cast<size_t>(tensor.size()) * sizeof(float), slot);
  return tensor;
}

// input * weights as floats [B, S, N].
absl::StatusOr<TensorArg> Projected(KernelArgs& args, ProductFn product) {
  PF_ASSIGN_OR_RETURN(const FloatValues x, FloatValues::Of(args.input(kAttentionInput)));
  PF_ASSIGN_OR_RETURN(const FloatValues weights, FloatValues::Of(args.input(kAttentionWeights)));
  const std::vector<int64_t>& dims = args.input(kAttentionInput).dims;
  const std::vector<int64_t>& matrix = args.input(kAttentionWeights).dims;
  const TensorArg rows = ScratchFloats(args, {dims[0], dims[1], matrix[1]}, kProjected);
  KernelArgs call;
  call.node = args.node;
  call.opset = args.opset;
  call.inputs = {FloatTensor(x, dims), FloatTensor(weights, matrix)};
  call.outputs = {rows};
  call.scratch = args.scratch;
  PF_RETURN_IF_ERROR(product(call, {}));
  return rows;
}

// Columns [first, first + width) of every row.
TensorArg Columns(KernelArgs& args, const TensorArg& rows, int64_t first, int64_t width, int slot) {
  const TensorArg part = ScratchFloats(args, {rows.dims[0], rows.dims[1], width}, slot);
  const int64_t stride = rows.dims[2];
  ParallelFor(rows.dims[0] * rows.dims[1], width, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      std::copy_n(rows.as<float>() + row * stride + first, width, part.as<float>() + row * width);
    }
  });
  return part;
}

// Adds the bias to the projected rows, then rotates the heads of queries and keys among them by
// their places.
absl::Status AddBiasAndRotate(const KernelArgs& args, const TensorArg& rows, int64_t head_size,
                              int64_t rotated, int64_t past) {
  PF_ASSIGN_OR_RETURN(const FloatValues bias, FloatValues::Of(args.input(kAttentionBias)));
  PF_ASSIGN_OR_RETURN(const int64_t heads, args.node->IntAttribute("num_heads", 0));
  const std::vector<float> frequencies = RotaryFrequencies(rotated);
  const int64_t length = rows.dims[1], width = rows.dims[2];
  std::vector<float> cosines, sines;
  for (int64_t place = past; place < past + length; ++place) {
    for (const float frequency : frequencies) {
      const float angle = static_cast<float>(place) * frequency;
      cosines.push_back(std::cos(angle));
      sines.push_back(std::sin(angle));
    }
  }
  const Rotation rotation{
      .cosines = cosines.data(), .sines = sines.data(), .positions = length, .half = rotated / 2};
  ParallelFor(rows.dims[0] * length, width * 2, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float* row = rows.as<float>() + i * width;
      for (int64_t j = 0; bias.present() && j < width; ++j) row[j] += bias.data()[j];
      for (int64_t head = 0; head < 2 * heads; ++head) {
        rotation.Apply(i % length, row + head * head_size);
      }
    }
  });
  return absl::OkStatus();
}

// Keys or values of a past or present [2, B, H, T, D].
TensorArg Half(const TensorArg& stack, int which) {
  if (!stack.present()) return {};
  TensorArg half{stack.dtype, {stack.dims.begin() + 1, stack.dims.end()}, nullptr};
  const int64_t bytes = half.size() * BitWidth(stack.dtype) / 8;
  half.data = stack.as<char>() + which * bytes;
  return half;
}

// The mask [B, S, T] of one with four axes: rows of all places from `past` on, or of the queries.
TensorArg SeenByQuery(KernelArgs& args, int64_t batch, int64_t length, int64_t total) {
  const TensorArg& mask = args.input(kAttentionMask);
  const int64_t rows = mask.dims[2], columns = mask.dims[3];
  const int64_t first = rows == length ? 0 : total - length;
  TensorArg seen{DataType::kInt32, {batch, length, total}, nullptr};
  seen.data = args.scratch->Get(static_cast<size_t>(seen.size()) * sizeof(int32_t), kSeen);
  for (int64_t b = 0; b < batch; ++b) {
    const auto* of_batch = mask.as<int32_t>() + (mask.dims[0] == 1 ? 0 : b * rows * columns);
    for (int64_t s = 0; s < length; ++s) {
      std::copy_n(of_batch + (first + s) * columns, total,
                  seen.as<int32_t>() + (b * length + s) * total);
    }
  }
  return seen;
}

// The mask [B, T] that lengths [B], or ends and begins [2 B], stand for; [B, S, T] of one with four
// axes; others as they are.
TensorArg PaddingOf(KernelArgs& args, int64_t batch, int64_t length, int64_t total) {
  const TensorArg& mask = args.input(kAttentionMask);
  if (mask.present() && mask.dims.size() == 4) return SeenByQuery(args, batch, length, total);
  if (!mask.present() || mask.dims.size() != 1) return mask;
  TensorArg seen{DataType::kInt32, {batch, total}, nullptr};
  seen.data = args.scratch->Get(static_cast<size_t>(batch * total) * sizeof(int32_t), kSeen);
  const auto* places = mask.as<int32_t>();
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t begin = mask.size() > batch ? places[batch + b] : 0;
    for (int64_t j = 0; j < total; ++j) {
      seen.as<int32_t>()[b * total + j] = j >= begin && j < places[b] ? 1 : 0;
    }
  }
  return seen;
}

absl::Status Run(KernelArgs& args, ProductFn product, RunFn attend) {
  PF_ASSIGN_OR_RETURN(const int64_t heads, args.node->IntAttribute("num_heads", 0));
  PF_ASSIGN_OR_RETURN(const TensorArg rows, Projected(args, product));
  PF_ASSIGN_OR_RETURN(const ProjectedColumns columns,
                      ProjectedColumnsOf(*args.node, Dim(rows.dims[2]), heads));
  const int64_t query = *columns.query.constant(), value = *columns.value.constant();
  const TensorArg& past = args.input(kAttentionPast);
  const int64_t total = rows.dims[1] + (past.present() ? past.dims[3] : 0);
  PF_ASSIGN_OR_RETURN(const Dim rotated, RotatedChannels(*args.node, Dim(query / heads)));
  const bool rotates = *rotated.constant() > 0;
  if (rotates) {
    PF_RETURN_IF_ERROR(
        AddBiasAndRotate(args, rows, query / heads, *rotated.constant(), total - rows.dims[1]));
  }
  KernelArgs call;
  call.node = args.node;
  call.opset = args.opset;
  call.scratch = args.scratch;
  call.inputs = {Columns(args, rows, 0, query, kQueryRows),
                 Columns(args, rows, query, query, kKeyRows),
                 Columns(args, rows, 2 * query, value, kValueRows),
                 rotates ? TensorArg{} : args.input(kAttentionBias),
                 PaddingOf(args, rows.dims[0], rows.dims[1], total),
                 args.input(kAttentionScoreBias),
                 Half(past, 0),
                 Half(past, 1)};
  call.outputs = {args.output(0), Half(args.output(1), 0), Half(args.output(1), 1)};
  return attend(call);
}

}  // namespace

// The attributes of the op are MultiHeadAttention's own, by name and meaning.
absl::Status AttentionReference(KernelArgs& args) {
  return Run(args, ReferenceProduct, MhaReference);
}
absl::Status AttentionHwy(KernelArgs& args) { return Run(args, LinearProduct, MhaHwy); }

}  // namespace pagefuse::microsoft_ops
