#include "pagefuse/passes/words/last_axis_part.h"

#include <vector>

#include "pagefuse/passes/graph_edit.h"
#include "pagefuse/passes/ports.h"

namespace pagefuse {
namespace {

using ports::Slice;

constexpr int kLastAxis = 3;

std::optional<int64_t> LastDim(const Value* value) {
  if (!value->shape() || value->shape()->rank() <= kLastAxis) return std::nullopt;
  return (*value->shape())[kLastAxis].constant();
}

std::optional<LastAxisPart> PartOfSplit(const Value* part) {
  const Node* split = part->producer();
  if (NormalAxis(IntOr(*split, "axis", 0), kLastAxis + 1) != kLastAxis) return std::nullopt;
  LastAxisPart result{.whole = split->input(0)};
  for (const Value* output : split->outputs()) {
    const std::optional<int64_t> size = output ? LastDim(output) : std::nullopt;
    if (!size) return std::nullopt;
    result.end = result.begin + *size;
    if (output == part) return result;
    result.begin = result.end;
  }
  return std::nullopt;
}

std::optional<LastAxisPart> PartOfSlice(const Value* part) {
  const Node* slice = part->producer();
  const auto only = [&](int input) -> std::optional<int64_t> {
    const Tensor* tensor = slice->input(input) ? ConstantOf(slice->input(input)) : nullptr;
    if (tensor == nullptr || tensor->size() != 1) return std::nullopt;
    const absl::StatusOr<std::vector<int64_t>> values = IntegerValues(*tensor);
    return values.ok() ? std::optional<int64_t>(values->front()) : std::nullopt;
  };
  const std::optional<int64_t> begin = only(Slice::kStarts), axis = only(Slice::kAxes);
  const std::optional<int64_t> size = LastDim(part);
  if (!begin || *begin < 0 || !axis || NormalAxis(*axis, kLastAxis + 1) != kLastAxis || !size)
    return std::nullopt;
  if (slice->input(Slice::kSteps) != nullptr && only(Slice::kSteps) != 1) return std::nullopt;
  return LastAxisPart{slice->input(Slice::kData), *begin, *begin + *size};
}

}  // namespace

std::optional<LastAxisPart> FindPart(const Value* part) {
  const Node* node = part->producer();
  if (node == nullptr || !part->shape() || part->shape()->rank() != kLastAxis + 1)
    return std::nullopt;
  if (node->Is("Split")) return PartOfSplit(part);
  if (node->Is("Slice")) return PartOfSlice(part);
  return std::nullopt;
}

std::optional<LastAxisHalves> FindHalves(const Value* first, const Value* second) {
  const auto low = FindPart(first), high = FindPart(second);
  if (!low || !high || low->whole != high->whole || low->begin != 0 || high->begin != low->end ||
      LastDim(low->whole) != high->end) {
    return std::nullopt;
  }
  return LastAxisHalves{low->whole, low->end, high->end - high->begin};
}

}  // namespace pagefuse
