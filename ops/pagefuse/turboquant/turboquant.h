// SPDX-License-Identifier: Apache-2.0
// What the ops over TurboQuant slots share: attributes, checks of the cache and its tables.
// Domain pagefuse, version 1. They equal vLLM's triton_turboquant_store,
// triton_turboquant_decode_attention and _tq_full_dequant_kv.
//
// T tokens, B sequences, Hq query heads, Hk KV heads, D head size, S bytes of a slot (at least
// those of its format, and even), NB blocks of BS slots, M columns of the block table.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ops/kernels/formats/cache_format.h"
#include "pagefuse/ops/kernels/formats/turboquant_format.h"
#include "pagefuse/ops/pagefuse/attention/turboquant_body.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::pagefuse_ops {

struct TurboQuantAttributes {
  int key_bits = 4;
  int value_bits = 4;
  bool norm_correction = false;

  TurboQuantFormat Format(int64_t head_size) const { return {key_bits, value_bits, head_size}; }
};

// Of checked attributes; norm_correction where the op has it.
absl::StatusOr<TurboQuantAttributes> ReadTurboQuantAttributes(const Node& node);
// Declares key_bits and value_bits.
OpDef& AddTurboQuantBits(OpDef& op);

// Input numbers of one op.
struct TurboQuantPorts {
  int cache;
  int rotation;
  int centroids;
};
template <size_t N>
constexpr TurboQuantPorts TurboQuantPortsOf(const Ports<N>& inputs) {
  return {inputs.Find("kv_cache"), inputs.Find("rotation"), inputs.Find("centroids")};
}

// The bytes of a slot for heads of the size that the op's shapes call `head_size`, which input
// `source` tells; -1: an attribute of that name does.
SizeDef::ComputeFn SlotBytes(std::string_view head_size, int source);
// InvalidArgument if the keys of this head size are rotated by a matrix that is not given.
absl::Status CheckRotationGiven(const ShapeContext& c, const TurboQuantPorts& ports,
                                const Dim& head_size);

// Checks that given centroids are finite and ascend.
absl::Status ValidateCentroids(const KernelArgs& args, const TurboQuantPorts& ports);

// The tables of checked arguments: inputs, or the defaults.
TurboQuantTables ReadTurboQuantTables(const KernelArgs& args, const TurboQuantPorts& ports,
                                      const TurboQuantFormat& format);

// The slots of a cache tensor, all heads.
CacheRows TurboQuantSlots(const TensorArg& cache);

// The body of a node: what its attributes, inputs and known shapes say. `head_size` is -1 where it
// is not known; FailedPrecondition if the body cannot be written without it.
absl::StatusOr<TurboQuantBody> ReadTurboQuantBody(const Node& node, const TurboQuantPorts& ports,
                                                  int64_t head_size);

}  // namespace pagefuse::pagefuse_ops
