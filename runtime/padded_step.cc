// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/padded_step.h"

#include <algorithm>
#include <bit>

namespace pagefuse {

int64_t PaddedSequences(int64_t sequences) {
  if (sequences <= 2) return sequences;
  const auto below = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(sequences - 1)));
  const int64_t step = std::max<int64_t>(4, below / 2);
  return (sequences + step - 1) / step * step;
}

bool PaddedStep::Suits(const StepMetadata& step) {
  return !step.seq_lens.empty() && step.positions.size() == step.seq_lens.size() &&
         step.logit_rows.size() == step.positions.size();
}

void PaddedStep::Fill(const std::vector<int64_t>& ids, const StepMetadata& step) {
  const auto size = static_cast<size_t>(PaddedSequences(static_cast<int64_t>(ids.size())));
  input_ids = ids;
  metadata = step;
  input_ids.resize(size, 0);
  metadata.positions.resize(size, 0);
  metadata.seq_lens.resize(size, 0);
  while (metadata.logit_rows.size() < size) {
    metadata.query_start_loc.push_back(metadata.query_start_loc.back() + 1);
    metadata.logit_rows.push_back(static_cast<int64_t>(metadata.logit_rows.size()));
  }
  for (StepMetadata::Group& group : metadata.groups) {
    // A block that is there: what is derived from positions alone reads a row of it.
    group.block_table.resize(size * static_cast<size_t>(group.max_blocks), 0);
    group.slot_mapping.resize(size, -1);
  }
}

}  // namespace pagefuse
