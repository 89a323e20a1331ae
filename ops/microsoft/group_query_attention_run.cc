// SPDX-License-Identifier: Apache-2.0
// GroupQueryAttention: rows are normed, rotated and cached in float, then attended to.
#include <algorithm>
#include <cstring>

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/attention/dense_attention.h"
#include "pagefuse/ops/microsoft/gqa_parts.h"
#include "pagefuse/ops/microsoft/group_query_attention.h"
#include "pagefuse/ops/microsoft/head_rows.h"
#include "pagefuse/ops/microsoft/tensor_values.h"

namespace pagefuse::microsoft_ops {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);

constexpr PreparationWeights::Ports kPorts = {kGqaCos, kGqaSin, kGqaQNormWeight, kGqaKNormWeight};

HeadSource SourceOf(const KernelArgs& args, const GqaCall& call, int which) {
  const GqaAttributes& a = call.attributes;
  return HeadSourceOf(args, {a.q_heads, a.kv_heads, call.packed}, which, call.head_size);
}

// Position of new token `s` of sequence `b`, for the rotation.
int64_t PositionOf(const KernelArgs& args, const GqaCall& call, int64_t b, int64_t s) {
  const TensorArg& ids = args.input(kGqaPositionIds);
  return ids.present() ? IntAt(ids, b * call.q_len + s) : call.sequences[b].position + s;
}

// The rows that attention reads: [B, Hk, rows, D] in the cache's format. The present tensor, or
// memory of its own where a windowed cache is shorter than what is read.
struct AttendedRows {
  ScaledRows format;
  uint8_t* data = nullptr;
  int64_t rows = 0;

  uint8_t* At(const GqaCall& call, int64_t b, int64_t head, int64_t row) const {
    return data + ((b * call.attributes.kv_heads + head) * rows + row) * format.RowBytes();
  }
};

// The past's rows, then the new ones; zeros behind.
void FillRows(const KernelArgs& args, const GqaCall& call, bool keys,
              const HeadPreparation* preparation, const AttendedRows& out) {
  const HeadSource source = SourceOf(args, call, keys ? 1 : 2);
  const TensorArg& past = args.input(keys ? kGqaPastKey : kGqaPastValue);
  const int64_t heads = call.attributes.kv_heads;
  const int64_t row_bytes = out.format.RowBytes();
  const auto load_new = [&](int64_t b, int64_t head, int64_t s, float* row) {
    source.Load(b * call.kv_len + s, head, row);
    if (preparation != nullptr) {
      preparation->Apply(PositionOf(args, call, b, s), row, call.head_size);
    }
  };
  ParallelFor(call.batch * heads, out.rows * row_bytes * 2, [&](int64_t begin, int64_t end) {
    std::vector<float> row(static_cast<size_t>(call.head_size));
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t b = unit / heads;
      const int64_t head = unit % heads;
      const int64_t resident = call.sequences[b].resident;
      uint8_t* to = out.At(call, b, head, 0);
      if (resident > 0) {
        std::memcpy(to, past.as<uint8_t>() + unit * call.past_rows * row_bytes,
                    static_cast<size_t>(resident * row_bytes));
      }
      for (int64_t s = 0; s < call.kv_len; ++s) {
        load_new(b, head, s, row.data());
        out.format.Encode(head, row.data(), to + (resident + s) * row_bytes);
      }
      const int64_t used = resident + call.kv_len;
      if (used < out.rows) {
        std::memset(to + used * row_bytes, 0, static_cast<size_t>((out.rows - used) * row_bytes));
      }
    }
  });
}

// A windowed present: the last of the rows that were attended to, then zeros.
void KeepLastRows(const GqaCall& call, const AttendedRows& rows, const TensorArg& present) {
  const int64_t row_bytes = rows.format.RowBytes();
  const int64_t heads = call.attributes.kv_heads;
  for (int64_t unit = 0; unit < call.batch * heads; ++unit) {
    const GqaSequence& sequence = call.sequences[unit / heads];
    const int64_t kept = WindowedRows(sequence.total, call.present_rows, call.attributes.window);
    uint8_t* to = present.as<uint8_t>() + unit * call.present_rows * row_bytes;
    const uint8_t* from = rows.data + (unit * rows.rows + sequence.rows - kept) * row_bytes;
    if (kept > 0) std::memcpy(to, from, static_cast<size_t>(kept * row_bytes));
    if (kept == call.present_rows) continue;
    std::memset(to + kept * row_bytes, 0,
                static_cast<size_t>((call.present_rows - kept) * row_bytes));
  }
}

// Rows as floats [B, Hk, rows, D], where they lie if they are floats.
const float* DecodedRows(const GqaCall& call, const AttendedRows& rows, Scratch& scratch,
                         int slot) {
  if (rows.format.element == DataType::kFloat) return reinterpret_cast<const float*>(rows.data);
  const int64_t heads = call.attributes.kv_heads;
  const int64_t size = call.head_size;
  auto* decoded = static_cast<float*>(
      scratch.Get(static_cast<size_t>(call.batch * heads * rows.rows * size * kFloatBytes), slot));
  ParallelFor(call.batch * heads * rows.rows, size * kFloatBytes * 2,
              [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) {
                  const int64_t unit = i / rows.rows;
                  if (i % rows.rows >= call.sequences[unit / heads].rows) continue;
                  rows.format.Decode(unit % heads, rows.data + i * rows.format.RowBytes(),
                                     decoded + i * size);
                }
              });
  return decoded;
}

// Prepared query rows [B, S, H, D], where they lie if nothing is to be done to them.
const float* Queries(const KernelArgs& args, const GqaCall& call,
                     const HeadPreparation& preparation) {
  const HeadSource source = SourceOf(args, call, 0);
  const bool is_float = source.tensor->dtype == DataType::kFloat;
  if (is_float && !call.packed && preparation.changes_nothing()) return source.tensor->as<float>();
  const int64_t count = call.batch * call.q_len * source.heads;
  auto* rows = static_cast<float*>(
      args.scratch->Get(static_cast<size_t>(count * call.head_size * kFloatBytes), 0));
  ParallelFor(count, call.head_size * kFloatBytes * 2, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t token = i / source.heads;
      float* row = rows + i * call.head_size;
      source.Load(token, i % source.heads, row);
      preparation.Apply(PositionOf(args, call, token / call.q_len, token % call.q_len), row,
                        call.head_size);
    }
  });
  return rows;
}

// Memory for the rows that attention reads, with the rows in it.
absl::StatusOr<AttendedRows> Attended(const KernelArgs& args, const GqaCall& call, bool keys,
                                      const HeadPreparation* preparation) {
  AttendedRows rows;
  PF_ASSIGN_OR_RETURN(rows.format, GqaRows(args, call, keys));
  const TensorArg& present = args.output(keys ? 1 : 2);
  rows.rows = call.present_rows;
  if (call.attributes.windowed_cache) {
    for (const GqaSequence& sequence : call.sequences) {
      rows.rows = std::max(rows.rows, sequence.resident + call.kv_len);
    }
  }
  if (present.present() && rows.rows == call.present_rows) {
    rows.data = present.as<uint8_t>();
  } else {
    const int64_t count = call.batch * call.attributes.kv_heads * rows.rows;
    rows.data = static_cast<uint8_t*>(
        args.scratch->Get(static_cast<size_t>(count * rows.format.RowBytes()), keys ? 1 : 2));
  }
  FillRows(args, call, keys, preparation, rows);
  return rows;
}

// A windowed cache whose rows fill the present tensor may still have to move to its front.
void StorePresent(const GqaCall& call, const AttendedRows& rows, const TensorArg& present) {
  if (!call.attributes.windowed_cache || !present.present()) return;
  if (rows.data == present.as<uint8_t>()) return;
  KeepLastRows(call, rows, present);
}

void SetLayouts(const GqaCall& call, int64_t rows, onnx_ops::DenseAttention& attention) {
  const GqaAttributes& a = call.attributes;
  const int64_t size = call.head_size;
  const int64_t width = a.q_heads * size;
  attention.q_layout = attention.y_layout = {call.q_len * width, size, width};
  attention.k_layout = attention.v_layout = {a.kv_heads * rows * size, rows * size, size};
}

void SetBias(const KernelArgs& args, const GqaCall& call, const FloatValues& bias,
             onnx_ops::DenseAttention& attention) {
  if (!bias.present()) return;
  const std::vector<int64_t>& dims = args.input(kGqaBias).dims;
  attention.bias.data = bias.data();
  attention.bias.strides[0] = dims[0] == 1 ? 0 : dims[1] * dims[2] * dims[3];
  attention.bias.strides[1] = dims[1] == 1 ? 0 : dims[2] * dims[3];
  attention.bias.strides[2] = dims[3];
  // The bias counts all keys of a sequence; a windowed cache starts at a later one.
  for (const GqaSequence& sequence : call.sequences) {
    attention.bias.first_keys.push_back(sequence.total - sequence.rows);
  }
}

template <auto attend>
absl::Status Run(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const GqaCall call, GqaCallOf(args));
  const GqaAttributes& a = call.attributes;
  PF_ASSIGN_OR_RETURN(const PreparationWeights weights, PreparationWeights::Of(args, kPorts, a));
  const HeadPreparation for_keys = weights.ForKeys();
  PF_ASSIGN_OR_RETURN(const AttendedRows keys, Attended(args, call, true, &for_keys));
  PF_ASSIGN_OR_RETURN(const AttendedRows values, Attended(args, call, false, nullptr));
  onnx_ops::DenseAttention attention;
  attention.q_heads = a.q_heads;
  attention.kv_heads = a.kv_heads;
  attention.qk_size = attention.v_size = call.head_size;
  attention.scale = ScoreScale(a, call.head_size);
  attention.softcap = a.softcap;
  attention.causal = a.causal;
  attention.window = a.window;
  for (const GqaSequence& s : call.sequences) {
    // A window of no keys: every query stands before the first.
    const int64_t first = a.window == 0 ? -call.q_len : s.first;
    attention.sequences.push_back({call.q_len, first, s.rows});
  }
  attention.q = Queries(args, call, weights.ForQuery());
  attention.k = DecodedRows(call, keys, *args.scratch, 3);
  attention.v = DecodedRows(call, values, *args.scratch, 4);
  SetLayouts(call, keys.rows, attention);
  PF_ASSIGN_OR_RETURN(const FloatValues bias, FloatValues::Of(args.input(kGqaBias)));
  SetBias(args, call, bias, attention);
  PF_ASSIGN_OR_RETURN(attention.sinks, HeadSinks(args, a, kGqaHeadSink));
  attention.y = FloatsOf(args, args.output(0), 5);
  attend(attention);
  StorePresent(call, keys, args.output(1));
  StorePresent(call, values, args.output(2));
  return StoreFloats(attention.y, args.output(0));
}

}  // namespace

absl::Status GqaReference(KernelArgs& args) { return Run<onnx_ops::DenseAttentionReference>(args); }
absl::Status GqaHwy(KernelArgs& args) { return Run<onnx_ops::DenseAttentionHwy>(args); }

}  // namespace pagefuse::microsoft_ops
