// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/microsoft/gqa_parts.h"

#include <cmath>

#include "pagefuse/base/status_macros.h"

namespace pagefuse::microsoft_ops {

absl::StatusOr<PreparationWeights> PreparationWeights::Of(const KernelArgs& args,
                                                          const Ports& ports,
                                                          const GqaAttributes& attributes) {
  PreparationWeights weights;
  weights.shared_.norm.epsilon = attributes.norm_epsilon;
  weights.shared_.round_to = args.input(0).dtype;
  if (attributes.rotates) {
    PF_ASSIGN_OR_RETURN(weights.cosines_, FloatValues::Of(args.input(ports.cosines)));
    PF_ASSIGN_OR_RETURN(weights.sines_, FloatValues::Of(args.input(ports.sines)));
    const std::vector<int64_t>& dims = args.input(ports.cosines).dims;
    weights.shared_.rotation.positions = dims[0];
    weights.shared_.rotation.half = dims[1];
    weights.shared_.rotation.interleaved = attributes.interleaved;
  }
  PF_ASSIGN_OR_RETURN(weights.q_norm_, FloatValues::Of(args.input(ports.q_norm)));
  PF_ASSIGN_OR_RETURN(weights.k_norm_, FloatValues::Of(args.input(ports.k_norm)));
  return weights;
}

HeadPreparation PreparationWeights::For(const FloatValues& norm, int64_t rotary_offset) const {
  HeadPreparation preparation = shared_;
  if (norm.present()) preparation.norm.weight = norm.data();
  if (cosines_.present()) {
    preparation.rotation.cosines = cosines_.data();
    preparation.rotation.sines = sines_.data();
    preparation.rotation.offset = rotary_offset;
  }
  return preparation;
}

absl::StatusOr<ScaledRows> WithScales(ScaledRows rows, const KernelArgs& args, KvScales kind,
                                      int64_t bits, int port) {
  if (kind != KvScales::kNone) {
    rows.four_bits = bits == 4;
    rows.per_channel = kind == KvScales::kPerChannel;
    PF_ASSIGN_OR_RETURN(const FloatValues scales, FloatValues::Of(args.input(port)));
    rows.scales.assign(scales.data(), scales.data() + scales.size());
  }
  PF_RETURN_IF_ERROR(rows.Check());
  return rows;
}

absl::StatusOr<std::vector<float>> HeadSinks(const KernelArgs& args,
                                             const GqaAttributes& attributes, int port) {
  PF_ASSIGN_OR_RETURN(const FloatValues sinks, FloatValues::Of(args.input(port)));
  if (sinks.present()) return std::vector<float>(sinks.data(), sinks.data() + sinks.size());
  if (!attributes.smooth_softmax) return std::vector<float>();
  return std::vector<float>(static_cast<size_t>(attributes.q_heads), 0.0f);
}

float ScoreScale(const GqaAttributes& attributes, int64_t head_size) {
  return attributes.scale != 0 ? attributes.scale : 1.0f / std::sqrt(static_cast<float>(head_size));
}

}  // namespace pagefuse::microsoft_ops
