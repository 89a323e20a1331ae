// SPDX-License-Identifier: Apache-2.0
// The weight of MatMulNBits, of gated products and of quantised experts, as ports and attributes
// give it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ops/kernels/linalg/nbits.h"
#include "pagefuse/ops/kernels/linalg/nbits_lanes.h"
#include "pagefuse/ops/microsoft/tensor_values.h"
#include "pagefuse/ops/schema/kernel.h"
#include "pagefuse/ops/schema/shape_context.h"

namespace pagefuse::microsoft_ops {

// Ports of MatMulNBits.
inline constexpr int kNBitsA = 0, kNBitsB = 1, kNBitsScales = 2, kNBitsZeros = 3;
inline constexpr int kNBitsGroupIndex = 4, kNBitsBias = 5;

// Scales and zero points as the kernels read them; owns what had to be converted.
struct NBitsParameters {
  FloatValues scales;
  FloatValues zeros;                    // zero points of a float type
  const uint8_t* zero_codes = nullptr;  // packed zero points

  static absl::StatusOr<NBitsParameters> Of(const TensorArg& scales, const TensorArg& zeros);
};

// What the attributes K, N, bits and block_size say.
struct NBitsSizes {
  int64_t k = 0, n = 0, bits = 4, block = 0;

  static absl::StatusOr<NBitsSizes> Of(const Node& node);
  // InvalidArgument naming the attribute that is out of range.
  absl::Status Check(const ShapeContext& context) const;

  int64_t blocks() const { return (k + block - 1) / block; }
  int64_t block_bytes() const { return block * bits / 8; }
  int64_t zero_row_bytes() const { return (blocks() * bits + 7) / 8; }
  // A weight of these sizes; the memory is that of the arguments.
  NBitsWeight Weight(const uint8_t* codes, const NBitsParameters& parameters) const;
  // The same in lanes, without zero points, of a call whose kernel has the ports `codes` and `scales`
  // packed (ops/schema/code_lanes.h): matrix `matrix` of them.
  NBitsLanes Lanes(const KernelArgs& args, int codes, int scales, int64_t matrix = 0) const;
};

// InvalidArgument unless input `i` is absent, of unknown shape, or has `count` elements.
absl::Status CheckCount(const ShapeContext& context, int i, int64_t count, std::string_view shape);

enum class ZeroPoints { kNone, kPacked, kOfAType };

// Lines that define `decoded` [N, K] of float from the port `codes` and the ports scales and
// zero_points.
std::string DecodedRowsText(const NBitsSizes& sizes, std::string_view codes, ZeroPoints zeros);

// What MatMulNBits computes, as text: codes -> [N, K] in float -> MatMul.
absl::StatusOr<std::string> DecomposeMatMulNBits(const Node& node);

// True if g_idx puts each column into the group that is its block, as without it.
bool AreGroupsInOrder(const Tensor& groups, const NBitsSizes& sizes);

// OK if activations are to be rounded to int8 (accuracy_level 4) and the kernel takes the blocks.
absl::Status SupportsInt8(const Node& node, const NBitsSizes& sizes);

// first + x * row `row`, in double. `groups`: the group of each column, null: its block.
double NBitsReferenceDot(const float* x, const NBitsWeight& w, int64_t row, double first = 0,
                         const int32_t* groups = nullptr);

// Of attributes that products with such weights share.
inline constexpr char kAccuracyLevelDoc[] =
    "4: activations are rounded to int8 in blocks of 32 (where block_size is a multiple of it); "
    "else all is computed in float";
inline constexpr char kProductAccuracyLevelDoc[] =
    "4: activations are rounded to int8 in blocks of 32 (where block_size is a multiple of it); "
    "3: activations and weights are rounded to bfloat16 where the machine has a unit for it; else "
    "all is computed in float";

}  // namespace pagefuse::microsoft_ops
