// Constant matrices [K, N] of bfloat16 in the blocks that kernels read (PackedBf16), as ports and
// attributes give them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ops/kernels/linalg/packed_bf16.h"
#include "pagefuse/ops/schema/kernel.h"
#include "pagefuse/ops/schema/shape_context.h"

namespace pagefuse::pagefuse_ops {

inline constexpr char kBf16Blocks[] = "[column_blocks, row_blocks, 16, 16, 2]";
inline constexpr char kBf16Doc[] =
    "A matrix [K, N] lies in blocks: element (k, n) at [n / 16, k / 32, k % 32 / 2, n % 16, k % 2], "
    "zeros past K and N: ceil(N / 16) column_blocks of ceil(K / 32) row_blocks.";

// What the attributes K and N say.
struct Bf16Sizes {
  int64_t k = 0, n = 0;

  static absl::StatusOr<Bf16Sizes> Of(const Node& node);
  int64_t column_blocks() const {
    return (n + PackedBf16::kBlockColumns - 1) / PackedBf16::kBlockColumns;
  }
  int64_t row_blocks() const { return (k + PackedBf16::kBlockRows - 1) / PackedBf16::kBlockRows; }
  // kBf16Blocks of a matrix, and of gate and up, whose column blocks alternate.
  std::vector<int64_t> Dims() const;
  std::vector<int64_t> GatedDims() const;
  // Words of one matrix.
  int64_t words() const { return column_blocks() * row_blocks() * PackedBf16::kBlockWords; }
};

// Sets output 0 to the shape of input `x` with N for its last dim.
void SetRowsOutput(ShapeContext& c, int x, const Bf16Sizes& sizes);

// Of a constant weight that lies in a mapped file and is large: a copy in memory of its own, whose huge
// pages are read with fewer look-ups of addresses; the file's pages go back. Null for others, which
// kernels read where they lie. ResourceExhausted if there is no memory.
absl::StatusOr<std::unique_ptr<KernelState>> PrepareBf16Weight(const PrepareArgs& args, int port);
// The copy, or the input.
TensorArg Bf16WeightOf(const KernelArgs& args, int port);

PackedBf16 PackedOf(const TensorArg& weight, const Bf16Sizes& sizes, int matrices = 1);

// bf16(x) * column n of a matrix, in double.
double Bf16ReferenceDot(const float* x, const PackedBf16& weight, int64_t n, int matrix = 0);

// What a stack of matrices has one of each for.
enum class Bf16Lead { kNone, kExperts, kGateAndUp };

// Lines of a decomposition: `rounded`, what x is to bfloat16, in float.
std::string RoundedText(std::string_view x);
// Lines that define `weight` in float from port w: [K, N], or [E, K, N] and [2, K, N]. Every size comes
// from a shape or an attribute, so that one text fits all matrices.
std::string DecodedBf16Text(Bf16Lead lead);

}  // namespace pagefuse::pagefuse_ops
