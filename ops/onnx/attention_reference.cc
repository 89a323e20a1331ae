// SPDX-License-Identifier: Apache-2.0
// Attention by its formula, in double.
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/onnx/attention.h"
#include "pagefuse/ops/onnx/element.h"

namespace pagefuse::onnx_ops {
namespace {

using Doubles = std::vector<double>;
constexpr double kMasked = -std::numeric_limits<double>::infinity();

// Past and new rows as doubles [B, Hkv, P + L, D].
absl::StatusOr<Doubles> Rows(const KernelArgs& args, int past, int current,
                             const HeadLayout& layout) {
  const TensorArg& x = args.input(current);
  PF_ASSIGN_OR_RETURN(const AttentionCall call, AttentionCallOf(args));
  const int64_t size = current == 1 ? call.qk_size : call.v_size;
  TensorArg all = {x.dtype, {call.batch, call.kv_heads, call.kv_len(), size}, nullptr};
  std::vector<std::byte> bytes(static_cast<size_t>(all.size() * BitWidth(x.dtype) / 8));
  all.data = bytes.data();
  ConcatPast(args.input(past), x, layout, all);
  return DecodedDoubles(all);
}

struct Operands {
  Doubles q, k, v;
  Doubles bias;  // empty: no mask
  MaskLayout mask;
};

absl::StatusOr<Operands> OperandsOf(const KernelArgs& args, const AttentionCall& call) {
  Operands operands;
  PF_ASSIGN_OR_RETURN(operands.q, DecodedDoubles(args.input(0)));
  PF_ASSIGN_OR_RETURN(operands.k, Rows(args, 4, 1, call.k));
  PF_ASSIGN_OR_RETURN(operands.v, Rows(args, 5, 2, call.v));
  const TensorArg& mask = args.input(3);
  operands.mask = MaskLayoutOf(call, mask);
  if (!mask.present()) return operands;
  PF_ASSIGN_OR_RETURN(operands.bias, DecodedDoubles(mask));
  if (mask.dtype != DataType::kBool) return operands;
  for (double& value : operands.bias) value = value != 0 ? 0.0 : kMasked;
  return operands;
}

// One query of one head: its scores through the four stages that can be asked for.
struct Stages {
  Doubles product, capped, biased, probability;
};

Stages StagesOf(const AttentionCall& call, const Operands& x, int64_t b, int64_t h, int64_t i) {
  const int64_t total = call.kv_len();
  const AttentionCall::Range keys = call.KeysOf(b, i);
  // Heads of no elements have no first one to refer to.
  const double* q = x.q.data() + call.q.At(b, h, i);
  Stages stages = {Doubles(total), Doubles(total), Doubles(total), Doubles(total)};
  double max = kMasked;
  for (int64_t j = 0; j < total; ++j) {
    const double* k =
        x.k.data() + ((b * call.kv_heads + call.KvHead(h)) * total + j) * call.qk_size;
    double sum = 0;
    for (int64_t d = 0; d < call.qk_size; ++d) sum += q[d] * k[d];
    stages.product[j] = sum * call.scale;
    stages.capped[j] = call.softcap == 0
                           ? stages.product[j]
                           : call.softcap * std::tanh(stages.product[j] / call.softcap);
    const int64_t* stride = x.mask.strides;
    double bias = j >= keys.first && j < keys.last && j < x.mask.width ? 0.0 : kMasked;
    if (bias == 0 && !x.bias.empty()) {
      bias = x.bias[b * stride[0] + h * stride[1] + i * stride[2] + j * stride[3]];
    }
    // A masked key counts for nothing, NaN or not.
    stages.biased[j] = bias == kMasked ? kMasked : stages.capped[j] + bias;
    max = std::fmax(max, stages.biased[j]);
  }
  if (max == kMasked) return stages;  // nothing to see: all probabilities are 0
  double sum = 0;
  for (double score : stages.biased) sum += std::exp(score - max);
  for (int64_t j = 0; j < total; ++j) {
    stages.probability[j] = std::exp(stages.biased[j] - max) / sum;
  }
  return stages;
}

const Doubles& Stage(const Stages& stages, int64_t mode) {
  const Doubles* all[] = {&stages.product, &stages.capped, &stages.biased, &stages.probability};
  return *all[mode];
}

// out += the rows v [probabilities, size], each by its probability.
void AddWeightedRows(const Doubles& probability, const double* v, int64_t size, double* out) {
  for (const double p : probability) {
    if (p != 0) {
      for (int64_t d = 0; d < size; ++d) out[d] += p * v[d];
    }
    v += size;
  }
}

}  // namespace

absl::Status AttentionReference(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const AttentionCall call, AttentionCallOf(args));
  PF_ASSIGN_OR_RETURN(const Operands x, OperandsOf(args, call));
  const int64_t total = call.kv_len();
  Doubles y(static_cast<size_t>(args.output(0).size()));
  Doubles scores;
  for (int64_t b = 0; b < call.batch; ++b) {
    for (int64_t h = 0; h < call.q_heads; ++h) {
      for (int64_t i = 0; i < call.q_len; ++i) {
        const Stages stages = StagesOf(call, x, b, h, i);
        const int64_t head = b * call.kv_heads + call.KvHead(h);
        AddWeightedRows(stages.probability, x.v.data() + head * total * call.v_size, call.v_size,
                        y.data() + call.y.At(b, h, i));
        if (!args.output(3).present()) continue;
        const Doubles& stage = Stage(stages, call.output_mode);
        scores.insert(scores.end(), stage.begin(), stage.end());
      }
    }
  }
  if (args.output(1).present()) ConcatPast(args.input(4), args.input(1), call.k, args.output(1));
  if (args.output(2).present()) ConcatPast(args.input(5), args.input(2), call.v, args.output(2));
  if (args.output(3).present()) PF_RETURN_IF_ERROR(EncodeDoubles(scores, args.output(3), 0));
  return EncodeDoubles(y, args.output(0), 0);
}

}  // namespace pagefuse::onnx_ops
