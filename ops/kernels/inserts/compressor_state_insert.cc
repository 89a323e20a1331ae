// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/inserts/compressor_state_insert.h"

#include "pagefuse/ops/kernels/numeric/convert.h"

namespace pagefuse::pagefuse_ops {

void InsertState(const StateInsert& insert) {
  std::vector<float> kv(insert.width);
  std::vector<float> score(insert.width);
  const int64_t source_bytes = insert.width * BitWidth(insert.type) / 8;
  for (const SlotWrite& write : insert.writes) {
    const int64_t at = write.token * source_bytes;
    // The sources are of a float type: never an error.
    DecodeToFloat(insert.type, insert.kv + at, insert.width, kv.data()).IgnoreError();
    DecodeToFloat(insert.type, insert.score + at, insert.width, score.data()).IgnoreError();
    auto* row = reinterpret_cast<float*>(insert.rows.AtSlot(write.slot, 0).data);
    for (int64_t i = 0; i < insert.width; ++i) {
      row[i] = kv[i];
      row[insert.half + i] = score[i] + insert.Ape(write.token)[i];
    }
  }
}

}  // namespace pagefuse::pagefuse_ops
