#include "pagefuse/ops/pagefuse/checks.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include "pagefuse/ir/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/ops/registry.h"

namespace pagefuse::pagefuse_ops {
namespace {

std::string InputPrefix(const KernelArgs& args, int input) {
  const OpDef* op =
      OpRegistry::Global().Find(args.node->domain(), args.node->op_type(), args.opset);
  const std::string name = op == nullptr ? "" : op->inputs()[input].name;
  return StrCat(args.node->Description(), ": input ", input, " \"", name, "\": ");
}

}  // namespace

bool Differ(const Dim& a, const Dim& b) {
  return a.is_constant() && b.is_constant() && *a.constant() != *b.constant();
}

absl::Status CheckRank(const ShapeContext& c, int input, int rank) {
  const Shape* shape = c.input_shape(input);
  if (shape == nullptr || shape->rank() == rank) return absl::OkStatus();
  return c.InputError(input, StrCat("expected rank ", rank, ", got ", shape->ToString()));
}

absl::Status CheckDims(const ShapeContext& c, int input,
                       const std::vector<std::optional<Dim>>& dims, std::string_view what) {
  const Shape* shape = c.input_shape(input);
  if (shape == nullptr) return absl::OkStatus();
  bool fits = shape->rank() == static_cast<int>(dims.size());
  for (size_t i = 0; fits && i < dims.size(); ++i) {
    fits = !dims[i] || !Differ(*dims[i], (*shape)[static_cast<int>(i)]);
  }
  if (fits) return absl::OkStatus();
  return c.InputError(input, StrCat("expected ", what, ", got ", shape->ToString()));
}

absl::Status CheckSlotCount(const ShapeContext& c, int slot_mapping, int source) {
  PF_RETURN_IF_ERROR(CheckRank(c, slot_mapping, 1));
  const auto slots = KnownDim(c, slot_mapping, 0);
  const auto rows = KnownDim(c, source, 0);
  if (!slots || !rows || *slots <= *rows) return absl::OkStatus();
  return c.InputError(slot_mapping, StrCat("expected at most ", *rows, " slots for the rows ",
                                           c.input_shape(source)->ToString(), ", got ",
                                           c.input_shape(slot_mapping)->ToString()));
}

absl::Status CheckBlockBytes(const ShapeContext& c, int cache, int64_t tokens,
                             int64_t token_bytes) {
  PF_RETURN_IF_ERROR(CheckRank(c, cache, 2));
  const auto bytes = KnownDim(c, cache, 1);
  const auto needed = CheckedMul(tokens, token_bytes);
  if (!bytes || (needed && *bytes >= *needed)) return absl::OkStatus();
  return c.InputError(cache, StrCat("expected blocks of at least ", tokens, " * ", token_bytes,
                                    " bytes, got ", c.input_shape(cache)->ToString()));
}

absl::Status CheckCosSin(const ShapeContext& c, int cos_sin, const std::optional<Dim>& size) {
  PF_RETURN_IF_ERROR(CheckRank(c, cos_sin, 2));
  const auto rotated = KnownDim(c, cos_sin, 1);
  if (!rotated) return absl::OkStatus();
  const bool fits = !size || !size->is_constant() || *rotated <= *size->constant();
  if (*rotated % 2 == 0 && fits) return absl::OkStatus();
  return c.InputError(cos_sin, StrCat("expected [P, R] with R even and at most ",
                                      size ? size->ToString() : "the channels of a row", ", got ",
                                      c.input_shape(cos_sin)->ToString()));
}

std::optional<Dim> DimOf(const ShapeContext& c, int input, int axis) {
  const Shape* shape = c.input_shape(input);
  if (shape == nullptr) return std::nullopt;
  if (axis < 0) axis += shape->rank();
  if (axis < 0 || axis >= shape->rank()) return std::nullopt;
  return (*shape)[axis];
}

std::optional<int64_t> KnownDim(const ShapeContext& c, int input, int axis) {
  const std::optional<Dim> dim = DimOf(c, input, axis);
  return dim ? dim->constant() : std::nullopt;
}

void SetSameOutput(ShapeContext& c, int output, int input) {
  const Shape* shape = c.input_shape(input);
  c.SetOutput(output, c.input_type(input),
              shape == nullptr ? std::nullopt : std::optional<Shape>(*shape));
}

absl::StatusOr<int64_t> ReadIntAttribute(const ShapeContext& c, std::string_view name,
                                         int64_t default_value, int64_t least) {
  PF_ASSIGN_OR_RETURN(const int64_t value, c.node().IntAttribute(std::string(name), default_value));
  if (value >= least) return value;
  return c.AttributeError(name, StrCat("expected at least ", least, ", got ", value));
}

absl::StatusOr<DataType> ReadFp8Storage(const ShapeContext& c) {
  PF_ASSIGN_OR_RETURN(const std::string name,
                      c.node().StringAttribute("fp8_storage", "float8e4m3fn"));
  if (name == "float8e4m3fn") return DataType::kFloat8E4M3FN;
  if (name == "uint8") return DataType::kUint8;
  return c.AttributeError("fp8_storage",
                          StrCat("expected one of float8e4m3fn, uint8, got \"", name, "\""));
}

absl::Status InputValueError(const KernelArgs& args, int input, std::string_view what) {
  return absl::InvalidArgumentError(StrCat(InputPrefix(args, input), what));
}

absl::Status InputRangeError(const KernelArgs& args, int input, std::string_view what) {
  return absl::OutOfRangeError(StrCat(InputPrefix(args, input), what));
}

absl::StatusOr<Dim> HeldSize(const ShapeContext& c, int input, int64_t most) {
  const std::optional<std::vector<Dim>> value = c.input_value(input);
  if (!value || value->size() != 1) return Dim::Unknown();
  const std::optional<int64_t> number = (*value)[0].constant();
  if (!number || (*number >= 0 && *number <= most)) return (*value)[0];
  const bool bounded = most < std::numeric_limits<int64_t>::max();
  return c.InputError(input, StrCat("expected 0 ", bounded ? StrCat("to ", most) : "or more",
                                    ", got ", *number));
}

int64_t IndexAt(const TensorArg& tensor, int64_t i) {
  return tensor.dtype == DataType::kInt32 ? tensor.as<const int32_t>()[i]
                                          : tensor.as<const int64_t>()[i];
}

absl::Status CheckScale(const KernelArgs& args, int input) {
  const TensorArg& scale = args.input(input);
  for (int64_t i = 0; scale.present() && i < scale.size(); ++i) {
    const float value = scale.as<const float>()[i];
    if (std::isfinite(value) && value > 0) continue;
    return InputValueError(args, input, StrCat("expected a finite positive scale, got ", value));
  }
  return absl::OkStatus();
}

absl::Status CheckSlots(const KernelArgs& args, int slot_mapping, int64_t num_blocks,
                        int64_t block_size) {
  const int64_t slots =
      CheckedMul(num_blocks, block_size).value_or(std::numeric_limits<int64_t>::max());
  const TensorArg& tensor = args.input(slot_mapping);
  for (int64_t t = 0; t < tensor.size(); ++t) {
    const int64_t slot = IndexAt(tensor, t);
    if (slot < slots) continue;
    return InputRangeError(args, slot_mapping,
                           StrCat("expected slots below ", slots, " (", num_blocks, " blocks of ",
                                  block_size, "), got ", slot, " at ", t));
  }
  return absl::OkStatus();
}

absl::Status CheckIndices(const KernelArgs& args, int input, int64_t limit, std::string_view what) {
  const TensorArg& tensor = args.input(input);
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const int64_t index = IndexAt(tensor, i);
    if (index >= 0 && index < limit) continue;
    return InputValueError(
        args, input, StrCat("expected ", what, " in [0, ", limit, "), got ", index, " at ", i));
  }
  return absl::OkStatus();
}

std::vector<SlotWrite> SlotWrites(const TensorArg& slot_mapping) {
  std::vector<SlotWrite> writes;
  const int64_t count = slot_mapping.size();
  writes.reserve(count);
  for (int64_t t = 0; t < count; ++t) {
    const int64_t slot = IndexAt(slot_mapping, t);
    if (slot >= 0) writes.push_back({t, slot});
  }
  KeepLastOfSlot(writes);
  return writes;
}

void KeepLastOfSlot(std::vector<SlotWrite>& writes) {
  const auto not_below = [](const SlotWrite& a, const SlotWrite& b) { return a.slot >= b.slot; };
  if (std::adjacent_find(writes.begin(), writes.end(), not_below) == writes.end()) return;
  // The last write of each slot, in a table of open addressing that is at most half full.
  const size_t size = std::bit_ceil(2 * writes.size());
  const int shift = 64 - std::countr_zero(size);
  std::vector<SlotWrite> last(size, {-1, -1});
  const auto place = [&](int64_t slot) -> SlotWrite& {
    constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u;  // 2^64 over the golden ratio
    size_t i = static_cast<size_t>((static_cast<uint64_t>(slot) * kGolden) >> shift);
    while (last[i].slot >= 0 && last[i].slot != slot) i = (i + 1) % size;
    return last[i];
  };
  for (const SlotWrite& write : writes) place(write.slot) = write;
  std::erase_if(writes,
                [&](const SlotWrite& write) { return place(write.slot).token != write.token; });
}

}  // namespace pagefuse::pagefuse_ops
