// SPDX-License-Identifier: Apache-2.0
// Parts that the fusions by test vectors share: ports, the texts around an op, addresses of rows in
// caches. It is private to them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "pagefuse/passes/analysis/indexing/byte_rows.h"
#include "pagefuse/passes/fuse/equivalent/fusion_search.h"

namespace pagefuse {

// Tries each of some readings until one fuses: whether one does.
template <typename Readings, typename Fuse>
absl::StatusOr<bool> AnyFuses(const Readings& readings, const Fuse& fuse) {
  for (const auto& reading : readings) {
    absl::StatusOr<bool> fused = fuse(reading);
    if (!fused.ok() || *fused) return fused;
  }
  return false;
}

// The number of a dim counted from the end (1: the last); -1 if it is none.
int64_t BackDim(const Value& value, int from_end);
int Rank(const Value& value);  // -1 if unknown
// The number of a dim, of a symbol as many as are compared on.
int64_t ComparedSize(const Value& value, int axis);
bool IsIndexVector(const Value& value);
bool IsRowType(DataType type);  // float, float16, bfloat16
// `fp8_storage` of an op whose codes are of the value's type.
std::string StorageOf(const Value& codes);
bool SameRows(const Value& a, const Value& b);  // the first dims

// True if the value has these last dims, and at least one before them: one or more axes of tokens.
bool EndsIn(const Value& value, const std::vector<int64_t>& tail);
// Ports with these marks of FusionPort.
FusionPort InnerPort(std::string name, ProbeRole role, std::function<bool(const Value&)> fits);
FusionPort MetadataPort(std::string name, ProbeRole role, std::function<bool(const Value&)> fits);
// Rows of tokens that end in these dims.
FusionPort RowPort(std::string name, std::vector<int64_t> tail);
// `spec` for bfloat16 alone.
FusionPort Bfloat16Port(FusionPort spec);
FusionPort SlotPort(std::string name = "slot_mapping");
FusionPort PositionPort(std::string name = "positions");
// Integers of that rank that the graph computes or is given; of rank 0, one element in any shape.
FusionPort IndexPort(std::string name, int rank, ProbeRole role = ProbeRole::kIndices);
// A scale of a whole tensor.
FusionPort ScalePort(std::string name);
// A cache of the type and shape of what was written into it.
FusionPort CachePort(std::string name, const Value* written);

// Codes and bytes that are computed exactly.
inline constexpr ResultRule kExactCodes = {};
inline constexpr ResultRule kWrittenBytes = {};

// Whether rows of so many elements may be multiplied by a Hadamard matrix there: a product, or sums and
// differences of halves, of halves of those, ..
bool MayTransformRows(const ComputedRegion& region, int64_t size);
// Of what becomes of such sums: taken in another order, a number is rounded otherwise at times.
inline constexpr double kTransformedShare = 0.002;

// Shapes as Reshape takes them: the dims but for one that is no number, which is -1; nullopt if
// more are none.
std::optional<std::string> ReshapeDims(const Value& value);
// A float with digits that give the same bits.
std::string FloatText(float value);
// ` <name> = Reshape (<of>, dims)` with its constant.
std::string ReshapeText(const std::string& name, const std::string& of, const std::string& dims);
// `name`: the port with one axis of tokens before the last dims.
std::string FlatText(const std::string& name, const std::string& port, const Value& value,
                     const std::vector<int64_t>& tail);
// `name`: `from` under the shape of `value`. The axes of tokens of more than one unknown length are
// those of the port `like`, before its last two dims; empty where they are not.
std::string UnflatText(const std::string& name, const std::string& from, const Value& value,
                       const std::string& like, const Value& like_value);
// `name`: `from` as integers of that type.
std::string CastText(const std::string& name, const std::string& from, DataType type);
// `<port>_32` for each of the ports: what ops take of metadata.
std::string NarrowText(const std::vector<std::string>& ports);
// One way to hold the places of rows in a cache.
struct SlotForm {
  std::vector<FusionPort> ports;
  std::string formal;
  std::string text;   // defines `slots`, one axis
  std::string first;  // the port that has one element a row
};
// By slot; by block and place in the block. The cache has blocks of that many tokens.
std::vector<SlotForm> SlotForms(int64_t block_size);
// Leaves no text where blocks and places in them are not two parts of slots.
void SetSlotLimits(const BoundPorts& ports, int64_t blocks, int64_t block_size, Draft& draft);
// `name`: the port with one axis of tokens. Where there may be more slots than rows, one row is
// repeated for all of them; where there may be fewer, the first rows are theirs.
std::string RowsText(const std::string& name, const std::string& port, const BoundPorts& ports,
                     const SlotForm& slots, const std::vector<int64_t>& tail);
// The same of rows of float8, which pass as bytes.
std::string CodeRowsText(const std::string& name, const std::string& port, const BoundPorts& ports,
                         const SlotForm& slots, const std::vector<int64_t>& tail);

}  // namespace pagefuse
