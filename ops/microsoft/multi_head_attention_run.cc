// MultiHeadAttention: rows with their biases as floats, past and new ones side by side.
#include <algorithm>
#include <vector>

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/attention/dense_attention.h"
#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/ops/microsoft/multi_head_attention.h"
#include "pagefuse/ops/microsoft/tensor_values.h"
#include "pagefuse/ops/onnx/element.h"

namespace pagefuse::microsoft_ops {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);

// Where rows (b, head, s) of query, key or value lie: `first` elements behind the layout's place.
struct Source {
  const TensorArg* tensor = nullptr;
  onnx_ops::HeadLayout layout;
  int64_t first = 0;
  int64_t length = 0, size = 0;
};

// Rows [B, L, H, parts, size] of which this is part `part`; parts 1: [B, L, H * size].
Source TokenRows(const TensorArg& tensor, const MhaCall& call, int64_t length, int64_t size,
                 std::pair<int64_t, int64_t> part) {
  const int64_t head = part.second * size;
  const int64_t row = call.heads * head;
  return {&tensor, {length * row, head, row}, part.first * size, length, size};
}

// which: 0 query, 1 key, 2 value.
Source SourceOf(const KernelArgs& args, const MhaCall& call, int which) {
  const int64_t size = which == 2 ? call.v_size : call.qk_size;
  const int64_t length = which == 0 ? call.q_len : call.new_len;
  if (call.form == MhaForm::kPackedQkv) {
    return TokenRows(args.input(kMhaQuery), call, length, size, {which, 3});
  }
  if (which > 0 && call.form == MhaForm::kPackedKv) {
    return TokenRows(args.input(kMhaKey), call, length, size, {which - 1, 2});
  }
  if (which > 0 && call.form == MhaForm::kHeads) {
    return {&args.input(which), {call.heads * length * size, length * size, size}, 0, length, size};
  }
  return TokenRows(args.input(which), call, length, size, {0, 1});
}

// Row (b, head, s) as floats, with the bias of the head.
void LoadRow(const Source& source, const float* bias, const int64_t (&index)[3], float* row) {
  const auto [b, head, s] = index;
  const int64_t element = source.first + source.layout.At(b, head, s);
  DecodeToFloat(source.tensor->dtype, onnx_ops::ElementAt(*source.tensor, element), source.size,
                row)
      .IgnoreError();  // one of the op's types
  if (bias == nullptr) return;
  for (int64_t i = 0; i < source.size; ++i) row[i] += bias[head * source.size + i];
}

// The part of the bias that belongs to query, key or value; null without one.
const float* BiasOf(const FloatValues& bias, const MhaCall& call, int which) {
  if (!bias.present()) return nullptr;
  return bias.data() + which * call.heads * call.qk_size;
}

// Past and new rows as floats [B, H, T, size].
float* AllRows(const KernelArgs& args, const MhaCall& call, int which, const float* bias) {
  const Source source = SourceOf(args, call, which);
  const TensorArg& past = args.input(which == 1 ? kMhaPastKey : kMhaPastValue);
  const TensorArg& present = args.output(which);
  const int64_t count = call.batch * call.heads * call.total();
  const int64_t size = source.size;
  const bool direct = present.present() && present.dtype == DataType::kFloat;
  float* rows = direct ? present.as<float>()
                       : static_cast<float*>(args.scratch->Get(
                             static_cast<size_t>(count * size * kFloatBytes), which));
  ParallelFor(count, size * kFloatBytes * 2, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t unit = i / call.total();
      const int64_t s = i % call.total();
      float* row = rows + i * size;
      if (s >= call.past_len) {
        LoadRow(source, bias, {unit / call.heads, unit % call.heads, s - call.past_len}, row);
        continue;
      }
      const int64_t element = (unit * call.past_len + s) * size;
      DecodeToFloat(past.dtype, onnx_ops::ElementAt(past, element), size, row).IgnoreError();
    }
  });
  return rows;
}

float* Queries(const KernelArgs& args, const MhaCall& call, const float* bias) {
  const Source source = SourceOf(args, call, 0);
  const int64_t count = call.batch * call.q_len * call.heads;
  auto* rows = static_cast<float*>(
      args.scratch->Get(static_cast<size_t>(count * call.qk_size * kFloatBytes), 0));
  ParallelFor(count, call.qk_size * kFloatBytes * 2, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t token = i / call.heads;
      LoadRow(source, bias, {token / call.q_len, i % call.heads, token % call.q_len},
              rows + i * call.qk_size);
    }
  });
  return rows;
}

// What is added to the scores: [batches, heads, rows, T].
struct ScoreBias {
  std::vector<float> values;
  int64_t batches = 1, heads = 1, rows = 1;
};

// The padding mask at (b, i, j): true where key j is seen.
bool Sees(const TensorArg& padding, const MhaCall& call, int64_t b, int64_t i, int64_t j) {
  const auto* values = padding.as<int32_t>();
  switch (padding.dims.size()) {
    case 1:
      return j < values[b];
    case 2:
      return values[b * call.total() + j] != 0;
    default:
      return values[(b * call.q_len + i) * call.total() + j] != 0;
  }
}

// Adds the filter at the keys that query i of sequence b does not see.
void AddPadding(const TensorArg& padding, const MhaCall& call, int64_t b, int64_t i, float* row) {
  for (int64_t j = 0; j < call.total(); ++j) {
    if (!Sees(padding, call, b, i, j)) row[j] += call.filter;
  }
}

ScoreBias ScoreBiasOf(const KernelArgs& args, const MhaCall& call, const FloatValues& bias) {
  const TensorArg& padding = args.input(kMhaKeyPadding);
  ScoreBias sum;
  if (bias.present()) {
    sum.batches = args.input(kMhaAttentionBias).dims[0];
    sum.heads = args.input(kMhaAttentionBias).dims[1];
    sum.rows = call.q_len;
  }
  if (padding.present()) {
    sum.batches = call.batch;
    if (padding.dims.size() == 3) sum.rows = call.q_len;
  }
  const int64_t rows = sum.heads * sum.rows, size = rows * call.total();
  sum.values.resize(static_cast<size_t>(sum.batches * size));
  for (int64_t b = 0; b < sum.batches; ++b) {
    float* to = sum.values.data() + b * size;
    if (bias.present()) {
      const int64_t from = args.input(kMhaAttentionBias).dims[0] > 1 ? b : 0;
      std::copy_n(bias.data() + from * size, size, to);
    }
    if (!padding.present()) continue;
    for (int64_t row = 0; row < rows; ++row) {
      AddPadding(padding, call, b, row % sum.rows, to + row * call.total());
    }
  }
  return sum;
}

// Rows of query, key or value as floats, and where they lie.
struct FloatRows {
  const float* data = nullptr;
  onnx_ops::HeadLayout layout;
};

// Read in place, where they are floats already and nothing is added to them or put before them.
FloatRows RowsOf(const KernelArgs& args, const MhaCall& call, int which, const float* bias) {
  const Source source = SourceOf(args, call, which);
  const bool alone = which == 0 || (call.past_len == 0 && !args.output(which).present());
  if (alone && bias == nullptr && source.tensor->dtype == DataType::kFloat) {
    return {source.tensor->as<float>() + source.first, source.layout};
  }
  const int64_t size = source.size, h = call.heads;
  if (which == 0) return {Queries(args, call, bias), {call.q_len * h * size, size, h * size}};
  const int64_t head = call.total() * size;
  return {AllRows(args, call, which, bias), {h * head, head, size}};
}

template <auto attend>
absl::Status Run(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const MhaCall call, MhaCallOf(args));
  PF_ASSIGN_OR_RETURN(const FloatValues bias, FloatValues::Of(args.input(kMhaBias)));
  PF_ASSIGN_OR_RETURN(const FloatValues added, FloatValues::Of(args.input(kMhaAttentionBias)));
  onnx_ops::DenseAttention attention;
  attention.q_heads = attention.kv_heads = call.heads;
  attention.qk_size = call.qk_size;
  attention.v_size = call.v_size;
  attention.scale = call.scale;
  attention.causal = call.causal;
  attention.sequences.assign(static_cast<size_t>(call.batch),
                             {call.q_len, call.total() - call.q_len, call.total()});
  const int64_t rows = call.total(), v = call.v_size, h = call.heads;
  attention.y_layout = {call.q_len * h * v, v, h * v};
  const FloatRows query = RowsOf(args, call, 0, BiasOf(bias, call, 0));
  const FloatRows key = RowsOf(args, call, 1, BiasOf(bias, call, 1));
  const FloatRows value = RowsOf(args, call, 2, BiasOf(bias, call, 2));
  attention.q = query.data;
  attention.k = key.data;
  attention.v = value.data;
  attention.q_layout = query.layout;
  attention.k_layout = key.layout;
  attention.v_layout = value.layout;
  ScoreBias scores;
  if (added.present() || args.input(kMhaKeyPadding).present()) {
    scores = ScoreBiasOf(args, call, added);
    attention.bias.data = scores.values.data();
    attention.bias.strides[0] = scores.batches == 1 ? 0 : scores.heads * scores.rows * rows;
    attention.bias.strides[1] = scores.heads == 1 ? 0 : scores.rows * rows;
    attention.bias.strides[2] = scores.rows == 1 ? 0 : rows;
  }
  attention.y = FloatsOf(args, args.output(0), 3);
  attend(attention);
  for (int i = 1; i < 3; ++i) {
    if (!args.output(i).present()) continue;
    PF_RETURN_IF_ERROR(StoreFloats(i == 1 ? attention.k : attention.v, args.output(i)));
  }
  return StoreFloats(attention.y, args.output(0));
}

}  // namespace

absl::Status MhaReference(KernelArgs& args) { return Run<onnx_ops::DenseAttentionReference>(args); }
absl::Status MhaHwy(KernelArgs& args) { return Run<onnx_ops::DenseAttentionHwy>(args); }

}  // namespace pagefuse::microsoft_ops
