// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/fuse/equivalent/fusion_parts.h"

#include <algorithm>
#include <bit>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/edit/constants.h"
#include "pagefuse/passes/rewrite/pattern.h"

namespace pagefuse {
int Rank(const Value& value) { return value.shape() ? value.shape()->rank() : -1; }

int64_t ComparedSize(const Value& value, int axis) {
  constexpr int64_t kSymbolSize = 8;
  return (*value.shape())[axis].constant().value_or(kSymbolSize);
}

int64_t BackDim(const Value& value, int from_end) {
  if (Rank(value) < from_end) return -1;
  return (*value.shape())[Rank(value) - from_end].constant().value_or(-1);
}

bool IsIndexVector(const Value& value) {
  return (value.dtype() == DataType::kInt64 || value.dtype() == DataType::kInt32) &&
         Rank(value) >= 1;
}

bool IsRowType(DataType type) {
  return type == DataType::kFloat || type == DataType::kFloat16 || type == DataType::kBfloat16;
}

std::string StorageOf(const Value& codes) {
  return codes.dtype() == DataType::kUint8 ? "uint8" : "float8e4m3fn";
}

bool MayTransformRows(const ComputedRegion& region, int64_t size) {
  if (size < 2 || (size & (size - 1)) != 0) return false;
  int64_t differences = 0;
  for (const Node* node : region.nodes) {
    if (node->Is("MatMul") || node->Is("Gemm") || node->Is("Einsum") ||
        node->Is("FusedMatMul", "com.microsoft")) {
      return true;
    }
    differences += node->Is("Sub") || node->Is("Neg") ? 1 : 0;
  }
  return differences >= std::countr_zero(static_cast<uint64_t>(size));
}

bool SameRows(const Value& a, const Value& b) {
  return Rank(a) > 0 && Rank(b) > 0 && ProvablyEqual((*a.shape())[0], (*b.shape())[0]);
}

bool EndsIn(const Value& value, const std::vector<int64_t>& tail) {
  const int size = static_cast<int>(tail.size());
  if (Rank(value) <= size) return false;
  for (int i = 0; i < size; ++i) {
    if (BackDim(value, size - i) != tail[i]) return false;
  }
  return true;
}

FusionPort InnerPort(std::string name, ProbeRole role, std::function<bool(const Value&)> fits) {
  return {.name = std::move(name), .role = role, .inner = true, .fits = std::move(fits)};
}

FusionPort MetadataPort(std::string name, ProbeRole role, std::function<bool(const Value&)> fits) {
  return {.name = std::move(name), .role = role, .metadata = true, .fits = std::move(fits)};
}

FusionPort RowPort(std::string name, std::vector<int64_t> tail) {
  return InnerPort(std::move(name), ProbeRole::kRows, [tail = std::move(tail)](const Value& value) {
    return IsRowType(value.dtype()) && EndsIn(value, tail);
  });
}

FusionPort Bfloat16Port(FusionPort spec) {
  spec.fits = [fits = spec.fits](const Value& value) {
    return value.dtype() == DataType::kBfloat16 && fits(value);
  };
  return spec;
}

FusionPort SlotPort(std::string name) {
  return MetadataPort(std::move(name), ProbeRole::kSlots, IsIndexVector);
}

FusionPort PositionPort(std::string name) {
  FusionPort port = MetadataPort(std::move(name), ProbeRole::kIndices, IsIndexVector);
  port.inner = true;
  return port;
}

FusionPort IndexPort(std::string name, int rank, ProbeRole role) {
  return MetadataPort(std::move(name), role, [rank](const Value& value) {
    const bool single = rank == 0 && Rank(value) == 1 && BackDim(value, 1) == 1;
    return (value.dtype() == DataType::kInt64 || value.dtype() == DataType::kInt32) &&
           (single || Rank(value) == rank) && !ConstantOf(&value);
  });
}

FusionPort ScalePort(std::string name) {
  return MetadataPort(std::move(name), ProbeRole::kScale, [](const Value& value) {
    return value.dtype() == DataType::kFloat &&
           (Rank(value) == 0 || (Rank(value) == 1 && BackDim(value, 1) == 1));
  });
}

FusionPort CachePort(std::string name, const Value* written) {
  return {
      .name = std::move(name), .role = ProbeRole::kContents, .fits = [written](const Value& value) {
        return value.dtype() == written->dtype() && value.shape() && written->shape() &&
               ProvablyEqual(*value.shape(), *written->shape());
      }};
}

std::optional<std::string> ReshapeDims(const Value& value) {
  if (!value.shape()) return std::nullopt;
  std::vector<int64_t> dims;
  for (const Dim& dim : value.shape()->dims()) dims.push_back(dim.constant().value_or(-1));
  if (std::count(dims.begin(), dims.end(), -1) > 1) return std::nullopt;
  return StrCat("[", absl::StrJoin(dims, ", "), "]");
}

std::string FloatText(float value) {
  std::string digits = absl::StrFormat("%.9g", value);
  if (digits.find_first_of(".en") == std::string::npos) digits += ".0";
  return digits;
}

std::string ReshapeText(const std::string& name, const std::string& of, const std::string& dims) {
  return StrCat(name, "_dims = Constant <value_ints: ints = ", dims, "> ()  ", name, " = Reshape (",
                of, ", ", name, "_dims)  ");
}

std::string FlatText(const std::string& name, const std::string& port, const Value& value,
                     const std::vector<int64_t>& tail) {
  if (Rank(value) == static_cast<int>(tail.size()) + 1) {
    return StrCat(name, " = Identity (", port, ")  ");
  }
  return ReshapeText(name, port, StrCat("[-1, ", absl::StrJoin(tail, ", "), "]"));
}

std::string UnflatText(const std::string& name, const std::string& from, const Value& value,
                       const std::string& like, const Value& like_value) {
  if (const auto dims = ReshapeDims(value)) return ReshapeText(name, from, *dims);
  const int lead = Rank(like_value) - 2;
  std::vector<int64_t> rest;
  for (int axis = 0; axis < Rank(value); ++axis) {
    const Dim& dim = (*value.shape())[axis];
    if (axis < lead) {
      if (!ProvablyEqual(dim, (*like_value.shape())[axis])) return "";
    } else {
      rest.push_back(dim.constant().value_or(-1));
    }
  }
  if (rest.empty() || std::count(rest.begin(), rest.end(), -1) > 0) return "";
  return StrCat(name, "_lead = Shape <start = 0, end = ", lead, "> (", like, ")  ", name,
                "_rest = Constant <value_ints: ints = [", absl::StrJoin(rest, ", "), "]> ()  ",
                name, "_dims = Concat <axis = 0> (", name, "_lead, ", name, "_rest)  ", name,
                " = Reshape (", from, ", ", name, "_dims)  ");
}

std::string CastText(const std::string& name, const std::string& from, DataType type) {
  return StrCat(name, " = Cast <to = ", static_cast<int>(type), "> (", from, ")  ");
}

std::string NarrowText(const std::vector<std::string>& ports) {
  std::string text;
  for (const std::string& port : ports) {
    StrAppend(&text, CastText(port + "_32", port, DataType::kInt32));
  }
  return text;
}

namespace {

// A remainder by that number, or an input that is taken for one.
bool IsPlaceInBlock(const Value& value, int64_t block_size) {
  const Node* node = value.producer();
  if (!node) return !ConstantOf(&value);
  if (IsViewNode(*node) || node->Is("Cast")) return IsPlaceInBlock(*node->input(0), block_size);
  const Tensor* divisor = node->Is("Mod") ? ConstantOf(node->input(1)) : nullptr;
  return divisor && IsFilledWith(*divisor, static_cast<double>(block_size));
}

}  // namespace

std::vector<SlotForm> SlotForms(int64_t block_size) {
  FusionPort slots = SlotPort();
  slots.inner = true;
  const SlotForm by_slot = {
      {slots}, "slot_mapping", ReshapeText("slots", "slot_mapping", "[-1]"), "slot_mapping"};
  if (block_size == 1) return {by_slot};
  FusionPort blocks = PositionPort("blocks");
  blocks.role = ProbeRole::kBlocks;
  blocks.fits = [](const Value& value) { return IsIndexVector(value) && !ConstantOf(&value); };
  FusionPort places = PositionPort("places_in_block");
  places.fits = [block_size](const Value& value) {
    return IsIndexVector(value) && IsPlaceInBlock(value, block_size);
  };
  return {by_slot,
          {{blocks, places},
           "blocks, places_in_block",
           StrCat("block_size = Constant <value_int: int = ", block_size,
                  "> ()  wide = Cast <to = 7> (blocks)  far = Cast <to = 7> (places_in_block)  "
                  "starts = Mul (wide, block_size)  slots_there = Add (starts, far)  ",
                  ReshapeText("slots", "slots_there", "[-1]")),
           "blocks"}};
}

namespace {

// True if `value` is computed from `other`, a few nodes away, or by so many that it cannot be told.
bool ComputedFrom(const Value& value, const Value& other) {
  constexpr int kNodesAway = 8;
  constexpr size_t kMostValues = 1024;
  std::vector<const Value*> values = {&value};
  absl::flat_hash_set<const Value*> seen = {&value};
  size_t next = 0;
  for (int away = 0; away <= kNodesAway; ++away) {
    for (const size_t end = values.size(); next < end; ++next) {
      if (values[next] == &other) return true;
      const Node* node = values[next]->producer();
      for (const Value* input : node ? node->inputs() : std::vector<Value*>{}) {
        if (input && seen.insert(input).second) values.push_back(input);
      }
      if (values.size() > kMostValues) return true;
    }
  }
  return false;
}

// As many of one as of the other, and neither says more than its own part of a slot.
bool AreBlocksAndPlaces(const Value& blocks, const Value& places) {
  return blocks.shape() && places.shape() && ProvablyEqual(*blocks.shape(), *places.shape()) &&
         !ComputedFrom(blocks, places) && !ComputedFrom(places, blocks);
}

}  // namespace

namespace {

// True if the value is chosen among others, one of which is a constant from `limit` on.
bool MayBeAtLeast(const Value& value, int64_t limit) {
  const Node* node = value.producer();
  while (node && (node->Is("Cast") || IsViewNode(*node))) node = node->input(0)->producer();
  if (!node || !node->Is("Where")) return false;
  for (int branch : {1, 2}) {
    const auto number = NumberOf(node->input(branch));
    if (number && *number >= static_cast<double>(limit)) return true;
  }
  return false;
}

}  // namespace

void SetSlotLimits(const BoundPorts& ports, int64_t blocks, int64_t block_size, Draft& draft) {
  const auto block = ports.find("blocks");
  const bool apart = block != ports.end();
  if (apart && !AreBlocksAndPlaces(*block->second, *ports.at("places_in_block"))) {
    draft.texts.clear();
  }
  const auto slots = ports.find("slot_mapping");
  // The op refuses a slot that a graph has for what it throws away.
  if (slots != ports.end() && MayBeAtLeast(*slots->second, blocks * block_size))
    draft.texts.clear();
  draft.limits["slot_mapping"] = blocks * block_size;
  draft.limits["blocks"] = blocks;
  draft.limits["places_in_block"] = block_size;
}

namespace {

// `from`: a value of the shape that `value` has.
std::string RowsOfText(const std::string& name, const std::string& from, const Value& value,
                       const Value& places, const std::vector<int64_t>& tail) {
  const bool flat = Rank(value) == static_cast<int>(tail.size()) + 1;
  if (!flat || Rank(places) != 1 || ProvablyEqual((*value.shape())[0], (*places.shape())[0])) {
    return tail.empty() ? ReshapeText(name, from, "[-1]") : FlatText(name, from, value, tail);
  }
  const std::string count =
      StrCat(name, "_slots = Shape (slots)  ", name, "_rows = Shape <start = 0, end = 1> (", from,
             ")  ", name, "_count = Max (", name, "_slots, ", name, "_rows)  ");
  if (tail.empty()) return StrCat(count, name, " = Expand (", from, ", ", name, "_count)  ");
  return StrCat(count, name, "_width = Constant <value_ints: ints = [", absl::StrJoin(tail, ", "),
                "]> ()  ", name, "_sizes = Concat <axis = 0> (", name, "_count, ", name,
                "_width)  ", name, " = Expand (", from, ", ", name, "_sizes)  ");
}

}  // namespace

std::string RowsText(const std::string& name, const std::string& port, const BoundPorts& ports,
                     const SlotForm& slots, const std::vector<int64_t>& tail) {
  return RowsOfText(name, port, *ports.at(port), *ports.at(slots.first), tail);
}

std::string CodeRowsText(const std::string& name, const std::string& port, const BoundPorts& ports,
                         const SlotForm& slots, const std::vector<int64_t>& tail) {
  return StrCat(
      name, "_bits = BitCast <to = 2> (", port, ")  ",
      RowsOfText(name + "_bytes", name + "_bits", *ports.at(port), *ports.at(slots.first), tail),
      name, " = BitCast <to = 17> (", name, "_bytes)  ");
}

}  // namespace pagefuse
