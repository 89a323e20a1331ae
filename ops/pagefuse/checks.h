// Checks that the cache ops share: shapes, slots, positions, block tables; and what they read from
// their arguments.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ops/kernel.h"
#include "pagefuse/ops/shape_context.h"

namespace pagefuse::pagefuse_ops {

// --- shape inference ---

// True if both dims are numbers and differ. What is not known yet is checked when it is.
bool Differ(const Dim& a, const Dim& b);

// InvalidArgument `expected rank 2, got [...]` unless the rank is right, or unknown.
absl::Status CheckRank(const ShapeContext& c, int input, int rank);

// InvalidArgument `expected <what>, got [...]` unless the shape can be `dims`; a dim of nullopt may
// be anything.
absl::Status CheckDims(const ShapeContext& c, int input,
                       const std::vector<std::optional<Dim>>& dims, std::string_view what);

// slot_mapping [T'] for the rows of `source` [T, ...]: T' <= T.
absl::Status CheckSlotCount(const ShapeContext& c, int slot_mapping, int source);

// A paged cache of bytes [blocks, S]: S must hold `tokens` tokens of `token_bytes` bytes.
absl::Status CheckBlockBytes(const ShapeContext& c, int cache, int64_t tokens, int64_t token_bytes);

// A table [P, R] of cosines and sines for rows of `size` channels: R is even and at most `size`.
absl::Status CheckCosSin(const ShapeContext& c, int cos_sin, const std::optional<Dim>& size);

// The dim as a number, if the shape and the dim are known. Negative axes count from the end.
std::optional<int64_t> KnownDim(const ShapeContext& c, int input, int axis);
// Its symbol or number; nullopt if the rank is unknown.
std::optional<Dim> DimOf(const ShapeContext& c, int input, int axis);

// The output is the input, updated or not: type and shape are the same.
void SetSameOutput(ShapeContext& c, int output, int input);

// An integer attribute of at least `least`. InvalidArgument `expected at least 1, got 0`.
absl::StatusOr<int64_t> ReadIntAttribute(const ShapeContext& c, std::string_view name,
                                         int64_t default_value, int64_t least);

// The attribute `fp8_storage`: float8e4m3fn (default) or its twin uint8.
absl::StatusOr<DataType> ReadFp8Storage(const ShapeContext& c);

// --- values ---

// InvalidArgument `node "x" (Op): input 5 "k_scale": <what>`, with the op's name for the input.
absl::Status InputValueError(const KernelArgs& args, int input, std::string_view what);
// The same message as OutOfRange.
absl::Status InputRangeError(const KernelArgs& args, int input, std::string_view what);

// The one integer that an input holds, as a size of shapes; unknown where its contents are not
// known. InvalidArgument unless it is from 0 to `most`.
absl::StatusOr<Dim> HeldSize(const ShapeContext& c, int input, int64_t most);

// Integer contents of an index tensor (int32 or int64).
int64_t IndexAt(const TensorArg& tensor, int64_t i);

// Every entry of a float input must be finite and positive; an omitted one passes.
absl::Status CheckScale(const KernelArgs& args, int input);

// Slots must be below num_blocks * block_size (OutOfRange); negative ones are padding.
absl::Status CheckSlots(const KernelArgs& args, int slot_mapping, int64_t num_blocks,
                        int64_t block_size);

// Every entry must be in [0, limit); `what` names them in the message ("positions").
absl::Status CheckIndices(const KernelArgs& args, int input, int64_t limit, std::string_view what);

// One token to write: row `token` of the source goes to `slot`.
struct SlotWrite {
  int64_t token;
  int64_t slot;
};
// The tokens whose slot is not negative. Of several with the same slot the last stays alone, so
// that they can be written in any order.
std::vector<SlotWrite> SlotWrites(const TensorArg& slot_mapping);
// The same of writes that are chosen already, in the order of their tokens.
void KeepLastOfSlot(std::vector<SlotWrite>& writes);

}  // namespace pagefuse::pagefuse_ops
