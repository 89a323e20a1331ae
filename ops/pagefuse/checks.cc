// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/pagefuse/checks.h"

#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/registry/registry.h"

namespace pagefuse::pagefuse_ops {
namespace {

std::string InputPrefix(const KernelArgs& args, int input) {
  const OpDef* op =
      OpRegistry::Global().Find(args.node->domain(), args.node->op_type(), args.opset);
  const std::string name = op == nullptr ? "" : op->inputs()[input].name;
  return StrCat(args.node->Description(), ": input ", input, " \"", name, "\": ");
}

}  // namespace

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
  return c.InputError(
      input, StrCat("expected 0 ", bounded ? StrCat("to ", most) : "or more", ", got ", *number));
}

IndexArray IndicesOf(const TensorArg& tensor) { return {tensor.dtype, tensor.data}; }

absl::Status CheckScale(const KernelArgs& args, int input) {
  const TensorArg& scale = args.input(input);
  for (int64_t i = 0; IsKnown(scale) && i < scale.size(); ++i) {
    const float value = scale.as<const float>()[i];
    if (std::isfinite(value) && value > 0) continue;
    return InputValueError(args, input, StrCat("expected a finite positive scale, got ", value));
  }
  return absl::OkStatus();
}

absl::Status CheckSlot(const KernelArgs& args, int slot_mapping, int64_t t,
                       const PagedBytes& paged) {
  const int64_t slots =
      CheckedMul(paged.num_blocks, paged.block_size).value_or(std::numeric_limits<int64_t>::max());
  const int64_t slot = IndexAt(args.input(slot_mapping), t);
  if (slot < slots) return absl::OkStatus();
  return InputRangeError(args, slot_mapping,
                         StrCat("expected slots below ", slots, " (", paged.num_blocks,
                                " blocks of ", paged.block_size, "), got ", slot, " at ", t));
}

absl::Status CheckSlots(const KernelArgs& args, int slot_mapping, const PagedBytes& paged) {
  for (int64_t t = 0; t < args.input(slot_mapping).size(); ++t) {
    PF_RETURN_IF_ERROR(CheckSlot(args, slot_mapping, t, paged));
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

}  // namespace pagefuse::pagefuse_ops
