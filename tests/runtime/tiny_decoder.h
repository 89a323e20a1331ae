// SPDX-License-Identifier: Apache-2.0
// A decoder of a few hundred weights: one layer of causal attention between an embedding and a
// vocabulary matrix. Its tokens depend on everything before them.
#pragma once

#include "pagefuse/ir/graph/model.h"

namespace pagefuse {

inline constexpr int64_t kTinyVocabulary = 23;

// int64[B, S] input_ids -> float[B, S, columns] logits. `window` > 0: a sliding window.
Model TinyDecoder(int64_t window = 0, int64_t columns = kTinyVocabulary);

}  // namespace pagefuse
