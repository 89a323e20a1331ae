// SPDX-License-Identifier: Apache-2.0
// Checks that the attention ops of this folder share.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ops/schema/kernel.h"
#include "pagefuse/ops/schema/shape_context.h"

namespace pagefuse::microsoft_ops {

// Sizes up to this keep every product of them far from overflow.
inline constexpr int64_t kMaxHeads = 1 << 20;

// The attribute num_heads, which is positive.
absl::StatusOr<int64_t> HeadsOf(const ShapeContext& c);

// The width of a row of input `i` is a positive multiple of the heads, if it is known.
absl::Status CheckWidth(const ShapeContext& c, int i, const Dim& width, int64_t heads);

// Input `i`, if it is there, broadcasts to the scores [B, H, S, T] in its first two dims.
absl::Status CheckScoreBias(const ShapeContext& c, int i, const Shape& scores);

// Sinks [H], and norm weights [D], of which there are both or none.
struct HeadWeightPorts {
  int sinks, q_norm, k_norm;
};
absl::Status CheckHeadWeights(const ShapeContext& c, const HeadWeightPorts& ports, int64_t heads,
                              const Dim& head_size);

// The values of a port of scales, if it is given.
absl::Status CheckScaleValues(const KernelArgs& args, int port, std::string_view name);

}  // namespace pagefuse::microsoft_ops
