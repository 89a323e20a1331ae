// SPDX-License-Identifier: Apache-2.0
// The slots of an insert's tokens, for the kernels that write rows into paged caches.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/container/inlined_vector.h"

#include "pagefuse/ops/kernels/cuda/cache_insert.h"
#include "pagefuse/ops/pagefuse/checks.h"
#include "pagefuse/ops/schema/kernel.h"

namespace pagefuse::cuda {

// Whether none comes twice: runs of neighbours, as tokens fill blocks, are apart from each other.
inline bool AreUnique(const IndexArray& slots, int64_t tokens) {
  absl::InlinedVector<std::pair<int64_t, int64_t>, 64> runs;  // first and last
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t slot = slots[t];
    if (slot < 0) continue;
    if (!runs.empty() && slot == runs.back().second + 1) {
      runs.back().second = slot;
    } else {
      runs.emplace_back(slot, slot);
    }
  }
  std::sort(runs.begin(), runs.end());
  for (size_t i = 1; i < runs.size(); ++i) {
    if (runs[i].first <= runs[i - 1].second) return false;
  }
  return true;
}

// Where the host sees that no slot comes twice, the kernel need not look.
inline SlotMapping SlotMappingOf(const KernelArgs& args, int input) {
  const TensorArg& slots = args.input(input);
  SlotMapping mapping;
  mapping.slots = slots.data;
  mapping.is_int64 = slots.dtype == DataType::kInt64;
  mapping.tokens = slots.dim(0);
  mapping.unique = mapping.tokens <= 1;
  const TensorArg& known = args.host_input(input);
  if (mapping.unique || known.data == nullptr) return mapping;
  mapping.unique = AreUnique(pagefuse_ops::IndicesOf(known), mapping.tokens);
  return mapping;
}

}  // namespace pagefuse::cuda
