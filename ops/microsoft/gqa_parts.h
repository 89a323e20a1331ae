// SPDX-License-Identifier: Apache-2.0
// What GroupQueryAttention and PagedAttention do alike with inputs that stand at other ports: rows
// are normed and rotated, a cache has scales, sinks take probability.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ops/kernels/formats/scaled_rows.h"
#include "pagefuse/ops/microsoft/group_query_attention.h"
#include "pagefuse/ops/microsoft/head_rows.h"
#include "pagefuse/ops/microsoft/tensor_values.h"

namespace pagefuse::microsoft_ops {

// Weights of the preparation of query and key rows. HeadPreparations point into it.
class PreparationWeights {
 public:
  struct Ports {
    int cosines, sines;  // [positions, R / 2]; read if the op rotates
    int q_norm, k_norm;  // [D], optional
  };
  static absl::StatusOr<PreparationWeights> Of(const KernelArgs& args, const Ports& ports,
                                               const GqaAttributes& attributes);

  // Rows are rounded to the type of input 0. `rotary_offset`: first rotated channel.
  HeadPreparation ForQuery(int64_t rotary_offset = 0) const { return For(q_norm_, rotary_offset); }
  HeadPreparation ForKeys(int64_t rotary_offset = 0) const { return For(k_norm_, rotary_offset); }

 private:
  HeadPreparation For(const FloatValues& norm, int64_t rotary_offset) const;

  FloatValues cosines_, sines_, q_norm_, k_norm_;
  HeadPreparation shared_;  // without the norm
};

// Adds the scales at `port` to rows whose head size and element type are set, and checks the whole.
absl::StatusOr<ScaledRows> WithScales(ScaledRows rows, const KernelArgs& args, KvScales kind,
                                      int64_t bits, int port);

// A score for every query head that takes probability and has no value; empty if there is none.
absl::StatusOr<std::vector<float>> HeadSinks(const KernelArgs& args,
                                             const GqaAttributes& attributes, int port);

// The factor of the scores.
float ScoreScale(const GqaAttributes& attributes, int64_t head_size);

}  // namespace pagefuse::microsoft_ops
