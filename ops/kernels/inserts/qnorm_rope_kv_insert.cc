// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/inserts/qnorm_rope_kv_insert.h"

#include <cstring>

#include "pagefuse/ops/kernels/numeric/convert.h"

namespace pagefuse::pagefuse_ops {
namespace {

// A row at `from` to x, rotated to the token's position.
void LoadRotated(const QNormCall& call, int64_t token, const uint8_t* from, bool norm,
                 std::vector<float>& x) {
  // The type is a float type: never an error.
  DecodeToFloat(call.type, from, call.size, x.data()).IgnoreError();
  if (norm) NormRow(nullptr, call.epsilon, call.size, x.data());
  RotateByTable(call.layout, call.table, call.positions[token], x.data());
}

// Where a row goes that has no groups.
struct Target {
  DataType type;  // of numbers
  float factor;   // of codes
  uint8_t* to;
};

// x * factor as e4m3fn, or x in the target's type.
void StoreRow(const QNormCall& call, const std::vector<float>& x, const Target& target) {
  const auto& [type, factor, to] = target;
  if (call.format != QNormFormat::kFp8) {
    EncodeFromFloat(type, x.data(), call.size, to).IgnoreError();
    return;
  }
  for (int64_t i = 0; i < call.size; ++i) to[i] = EncodeFloat<E4M3FNFormat>(x[i] * factor);
}

}  // namespace

void QNormRopeKvInsertPlain(const QNormCall& call) {
  if (call.size == 0) return;
  std::vector<float> x(call.size);
  std::vector<uint8_t> rounded(2 * call.size);
  for (int64_t t = 0; t < call.tokens; ++t) {
    for (int64_t head = 0; head < call.padded_heads; ++head) {
      uint8_t* out = call.query_out + (t * call.padded_heads + head) * call.QueryOutBytes();
      if (head >= call.heads) {
        std::memset(out, 0, call.QueryOutBytes());
        continue;
      }
      LoadRotated(call, t, call.Row(t * call.heads + head), true, x);
      StoreRow(call, x, {call.type, call.query_factor, out});
    }
    if (call.slots[t] < 0) continue;
    const RowAddress row = call.rows.AtSlot(call.slots[t], 0);
    LoadRotated(call, t, call.kv + t * call.RowBytes(), false, x);
    if (call.format != QNormFormat::kFp8Ue8m0) {
      StoreRow(call, x, {call.row_type, call.kv_factor, row.data});
      continue;
    }
    // Every element is rounded to bfloat16 before it is quantised or copied.
    const GroupedRowFormat& format = call.row_format;
    EncodeFromFloat(DataType::kBfloat16, x.data(), call.size, rounded.data()).IgnoreError();
    DecodeToFloat(DataType::kBfloat16, rounded.data(), call.size, x.data()).IgnoreError();
    EncodeGroupedRow(format, x.data(), rounded.data() + 2 * format.coded, row);
  }
}

}  // namespace pagefuse::pagefuse_ops
