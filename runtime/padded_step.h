// SPDX-License-Identifier: Apache-2.0
// Steps of decoding filled up to few sizes, so that a device can be asked for one of them as for the last.
#pragma once

#include <cstdint>
#include <vector>

#include "pagefuse/runtime/paged_cache.h"

namespace pagefuse {

// The size that a step of so many sequences is filled up to: 1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, ...
int64_t PaddedSequences(int64_t sequences);

// A step with sequences of length 0 behind its own, one token each, which no cache keeps and nobody asks for.
struct PaddedStep {
  std::vector<int64_t> input_ids;
  StepMetadata metadata;

  // Whether it is one of decoding: each sequence has one token, and its logits are wanted.
  static bool Suits(const StepMetadata& step);
  void Fill(const std::vector<int64_t>& ids, const StepMetadata& step);
};

}  // namespace pagefuse
