// SPDX-License-Identifier: Apache-2.0
// SplitLinear's ports, its outputs as columns of one product, and its kernels for codes.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ops/kernels/linalg/matrix.h"
#include "pagefuse/ops/pagefuse/linear/weight_kinds.h"

namespace pagefuse::pagefuse_ops {

inline constexpr Ports kSplitLinearIn({
    {"x", "T", "[..., K]"},
    {"w", "uint8 if scales, else bfloat16",
     "[N, blocks, block_size * bits / 8] if scales, else [N, K]: of bfloat16, under an x that is "
     "rounded to it, products are exact, sums in float"},
    PortSpec("bias", "T", "[N]").Optional(),
    PortSpec("scales", "T", "[N, blocks] or [N * blocks]").Optional(),
});

inline constexpr WeightPorts kSplitLinearPorts{
    .x = kSplitLinearIn["x"], .w = kSplitLinearIn["w"], .scales = kSplitLinearIn["scales"]};

// Outputs that a node may have.
inline constexpr int kMostLinearParts = 4;

// Columns [begin, begin + n) of the whole product, and where they go; y is null where nobody reads
// them.
struct LinearPart {
  int64_t begin = 0, n = 0;
  float* y = nullptr;
};

// A call, whatever its weight is.
struct SplitLinearCall {
  int64_t k = 0, n = 0;  // of the whole product
  RowsView x;
  const float* bias = nullptr;
  std::vector<LinearPart> parts;

  static absl::StatusOr<SplitLinearCall> Of(const KernelArgs& args);
  // What is left to do behind the product.
  void AddBias() const;
};

// Kernels of codes: the definition, with activations in float, and rounded to int8.
absl::Status RunSplitCodesReference(KernelArgs& args);
absl::Status RunSplitCodes(KernelArgs& args);
absl::StatusOr<std::unique_ptr<KernelState>> PrepareSplitInt8(const PrepareArgs& args);
absl::Status RunSplitInt8(KernelArgs& args);
// Of bfloat16 in blocks.
absl::Status RunSplitBf16(KernelArgs& args);

}  // namespace pagefuse::pagefuse_ops
