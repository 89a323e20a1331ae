// SPDX-License-Identifier: Apache-2.0
// Weights of codes that products of integers read in lanes (NBitsLanes): rows in a graph, 16 of them
// side by side in memory.
#pragma once

#include <initializer_list>
#include <vector>

#include "pagefuse/ops/kernels/linalg/nbits_lanes.h"
#include "pagefuse/ops/schema/packing.h"

namespace pagefuse {

// Rows of codes of uint8, whole words each.
extern const Packing kCodeLanes;
// Numbers a row, of a float type: float16 if all are that, else float.
extern const Packing kScaleLanes;

// The inputs of a weight that a kernel reads in lanes: `matrices` of them.
std::vector<PackedPort> CodeLanePorts(int codes, int scales, const PackedMatrices& matrices);

// FailedPrecondition naming the input that is no constant; absent ones need not be.
absl::Status ExpectConstants(const Node& node, std::initializer_list<int> ports);

// Puts the codes and scales of the call, where they are packed, into `weight`, whose sizes say which
// are those of `matrix`.
void SetCodeLanes(const KernelArgs& args, int codes, int scales, int64_t matrix,
                  NBitsLanes& weight);

}  // namespace pagefuse
