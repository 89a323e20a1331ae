// SPDX-License-Identifier: Apache-2.0
// Inputs of a decoder case.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "../random.h"
#include "absl/status/statusor.h"
#include "decoder_case.h"

#include "pagefuse/ir/tensor/tensor.h"

namespace pagefuse::fuzz {

using Feeds = std::map<std::string, Tensor>;

constexpr int64_t kVocabularySize = 30;

// Sizes of the step.
struct StepSizes {
  int64_t batch = 1, length = 1, past = 0;
};

// The sizes that the declaration of the ids fixes take the place of the wanted ones.
StepSizes DeclaredSizes(const DecoderCase& decoder, StepSizes wanted);
// True if the ids are declared with as many sequences as tokens.
bool BatchIsLength(const DecoderCase& decoder);

// A full forward pass over `tokens`, which are each sequence of the batch; nothing is padded, token
// types are 0.
absl::StatusOr<Feeds> FullForward(const DecoderCase& decoder, const std::vector<int64_t>& tokens);

// The tokens from `first` on, as the step that follows the others, which left `pasts`.
absl::StatusOr<Feeds> StepFeeds(const DecoderCase& decoder, const std::vector<int64_t>& tokens,
                                int64_t first, const Feeds& pasts);

struct RandomStep {
  StepSizes sizes;
  Feeds feeds;
  std::vector<bool> kept;  // [B, T]: not padding
  bool padded = false;
  std::string repeated;  // the axes of length 1 that others are longer than: `mask 1, positions 0`
};

// A step with a past, numbers chosen by role. `padded`: some tokens of the mask are padding.
// `loose`: where the declarations allow it, axes of other inputs than the ids have length 1.
struct StepKind {
  bool padded = false, loose = false, one_token = false;
};
absl::StatusOr<RandomStep> MakeStep(const DecoderCase& decoder, const StepKind& kind,
                                    Random& random);

}  // namespace pagefuse::fuzz
