// SPDX-License-Identifier: Apache-2.0
// GatedLinear's ports, and its kernels for weights that are no plain numbers.
#pragma once

#include "absl/status/status.h"

#include "pagefuse/ops/pagefuse/linear/weight_kinds.h"

namespace pagefuse::pagefuse_ops {

inline constexpr Ports kGatedIn({
    {"x", "T", "[..., K]"},
    {"w_gate", "uint8 if gate_scales, else W",
     "[N, blocks, block_size * bits / 8] if gate_scales, [N, K] if transB, else [K, N]: where W is "
     "bfloat16 and T float, x is rounded to bfloat16, products are exact, sums in float"},
    {"w_up", "uint8 if gate_scales, else W",
     "[N, blocks, block_size * bits / 8] if gate_scales, [N, K] if transB, else [K, N]"},
    PortSpec("gate_scales", "T", "[N, blocks] or [N * blocks]").Optional(),
    PortSpec("up_scales", "T", "[N, blocks] or [N * blocks]").ExactlyIf("gate_scales"),
});

inline constexpr WeightPorts kGatePorts{
    .x = kGatedIn["x"], .w = kGatedIn["w_gate"], .scales = kGatedIn["gate_scales"]};

// Kernels. Of bfloat16 in blocks:
absl::Status RunGatedBf16(KernelArgs& args);
// Of codes: the definition, with activations in float, and rounded to int8.
absl::Status RunGatedCodesReference(KernelArgs& args);
absl::Status RunGatedCodes(KernelArgs& args);
absl::StatusOr<std::unique_ptr<KernelState>> PrepareGatedInt8(const PrepareArgs& args);
absl::Status RunGatedInt8(KernelArgs& args);

}  // namespace pagefuse::pagefuse_ops
