// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/fuse/decoder/rotary_rows.h"

namespace pagefuse {

Value* CosSinRows(GraphBuilder& builder, Value* cos, Value* sin) {
  // The ops take float or bfloat16.
  const auto row = [&](Value* table) {
    if (table->dtype() != DataType::kFloat16) return table;
    return builder.Cast(table, DataType::kFloat);
  };
  return builder.Add("Concat", {row(cos), row(sin)}, {{"axis", 1}});
}

Value* RowNumbers(GraphBuilder& builder, Value* rows) {
  Value* count = builder.Add("Squeeze", {builder.Size(rows, 0)});
  return builder.Add("Range", {builder.Int(0), count, builder.Int(1)});
}

}  // namespace pagefuse
