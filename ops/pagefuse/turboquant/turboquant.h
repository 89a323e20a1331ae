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

#include "pagefuse/ops/cache/cache_format.h"
#include "pagefuse/ops/cache/turboquant_format.h"
#include "pagefuse/ops/op_def.h"
#include "pagefuse/ops/pagefuse/turboquant/turboquant_body.h"

namespace pagefuse::pagefuse_ops {

struct TurboQuantAttributes {
  int key_bits = 4;
  int value_bits = 4;
  bool norm_correction = false;

  TurboQuantFormat Format(int64_t head_size) const { return {key_bits, value_bits, head_size}; }
};

// Reads key_bits, value_bits and norm_correction (where the op has it). InvalidArgument naming node
// and attribute.
absl::StatusOr<TurboQuantAttributes> ReadTurboQuantAttributes(const Node& node);

// Input indices of one op.
struct TurboQuantPorts {
  int cache;
  int rotation;
  int centroids;
};

// What the checks of the cache compare it with.
struct TurboQuantSizes {
  int source;           // the input that has the head size; -1: it is an attribute
  Dim heads;            // Hk, if known
  Dim head_size;        // D, if known
  bool needs_rotation;  // keys are rotated
};
// Checks the shapes of cache, rotation and centroids, and that a needed rotation is there.
absl::Status CheckTurboQuantCache(const ShapeContext& c, const TurboQuantPorts& ports,
                                  const TurboQuantSizes& sizes);

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

// The mixes of bits that have a name, with and without norm correction where keys have norms; for
// variants. The centroids are an input.
std::vector<TurboQuantBody> TurboQuantVariantBodies();
std::string TurboQuantVariantName(const TurboQuantBody& body);

}  // namespace pagefuse::pagefuse_ops
