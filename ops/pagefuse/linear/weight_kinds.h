// SPDX-License-Identifier: Apache-2.0
// Weights of Linear, GatedLinear and GroupedMatMul in the formats that their ports can say.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ops/kernels/numeric/small_float.h"
#include "pagefuse/ops/microsoft/matmul_nbits.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::pagefuse_ops {

enum class WeightKind {
  kNumbers,  // of the type of x
  kBf16,     // bfloat16 under x of float, which is rounded to bfloat16 too
  kCodes,    // codes with scales
};

// The ports of x, of a weight and of its scales, -1 for an op without codes.
struct WeightPorts {
  int x = 0, w = 0, scales = -1;

  WeightKind KindAt(const Node& node) const;
  // InvalidArgument naming the port or attribute that is of none of the kinds.
  absl::Status Check(const ShapeContext& c) const;
  // OK where the node's weight is of that kind.
  absl::Status Expect(const KernelQuery& query, WeightKind kind) const;
  // OK for constants of bfloat16 with a row for each output (transB, which Linear means): such are
  // packed.
  absl::Status ExpectBf16Rows(const KernelQuery& query, int64_t trans_b) const;
  // OK for constant codes under activations that are rounded to int8.
  absl::Status ExpectInt8(const KernelQuery& query) const;
  // Sizes of codes as declared shapes tell them; FailedPrecondition if they do not.
  absl::StatusOr<microsoft_ops::NBitsSizes> CodeSizes(const Node& node) const;
};

// The same of a call.
absl::StatusOr<microsoft_ops::NBitsSizes> CodeSizesOf(const Node& node, int64_t k, int64_t n);

// Adds bits, block_size and accuracy_level, and the size `blocks` of a row of codes.
void AddCodeAttributes(OpDef& op, const WeightPorts& ports);

// bf16(x) * w in double, elements of w `step` apart.
double Bf16ReferenceDot(const float* x, const Bfloat16* w, int64_t step, int64_t k);

// Lines of a decomposition: `rounded`, what x is to bfloat16, in float.
std::string RoundedText(std::string_view x);

}  // namespace pagefuse::pagefuse_ops
