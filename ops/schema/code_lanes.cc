// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/schema/code_lanes.h"

#include <cstdint>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/tensor/resident_pages.h"
#include "pagefuse/ops/kernels/numeric/convert.h"

namespace pagefuse {
namespace {

constexpr int64_t kWordBytes = sizeof(uint32_t);

// True if nobody else has the memory, and words may be written where the bytes are.
bool IsOwn(Tensor& rows, const Allocator& allocator) {
  return &allocator == &HostAllocator() && rows.buffer().use_count() == 1 &&
         rows.mutable_data() != nullptr &&
         reinterpret_cast<uintptr_t>(rows.mutable_data()) % kWordBytes == 0;
}

absl::StatusOr<Tensor> PackCodes(Tensor rows, const PackedMatrices& matrices,
                                 Allocator& allocator) {
  LaneRows lanes{.count = matrices.count, .n = matrices.rows};
  lanes.each = rows.size() / (lanes.count * lanes.n) / kWordBytes;
  if (lanes.is_whole() && IsOwn(rows, allocator)) {
    PackLanes(rows.data(), lanes, static_cast<uint32_t*>(rows.mutable_data()));
    return rows;
  }
  PF_ASSIGN_OR_RETURN(Tensor packed, Tensor::Allocate(DataType::kUint8,
                                                      {lanes.lane_size() * kWordBytes}, allocator));
  PackLanes(
      rows.data(), lanes, static_cast<uint32_t*>(packed.mutable_data()),
      [&rows](const void* begin, size_t bytes) { ReleasePages(*rows.buffer(), begin, bytes); });
  return packed;
}

template <typename T>
absl::StatusOr<Tensor> PackNumbers(DataType type, const T* numbers, const LaneRows& lanes,
                                   Allocator& allocator) {
  PF_ASSIGN_OR_RETURN(Tensor packed, Tensor::Allocate(type, {lanes.lane_size()}, allocator));
  PackLanes(numbers, lanes, static_cast<T*>(packed.mutable_data()));
  return packed;
}

absl::StatusOr<Tensor> PackScales(Tensor rows, const PackedMatrices& matrices,
                                  Allocator& allocator) {
  LaneRows lanes{.count = matrices.count, .n = matrices.rows};
  lanes.each = rows.size() / (lanes.count * lanes.n);
  std::vector<float> numbers(static_cast<size_t>(rows.size()));
  PF_RETURN_IF_ERROR(DecodeToFloat(rows.dtype(), rows.data(), rows.size(), numbers.data()));
  const std::vector<Float16> halves = HalfScales(numbers.data(), rows.size());
  if (halves.empty()) return PackNumbers(DataType::kFloat, numbers.data(), lanes, allocator);
  return PackNumbers(DataType::kFloat16, halves.data(), lanes, allocator);
}

}  // namespace

constinit const Packing kCodeLanes{"codes of 16 rows", PackCodes};
constinit const Packing kScaleLanes{"scales of 16 rows", PackScales};

std::vector<PackedPort> CodeLanePorts(int codes, int scales, const PackedMatrices& matrices) {
  return {{.port = codes, .packing = &kCodeLanes, .matrices = matrices},
          {.port = scales, .packing = &kScaleLanes, .matrices = matrices}};
}

absl::Status ExpectConstants(const Node& node, std::initializer_list<int> ports) {
  for (const int port : ports) {
    const Value* value = port < node.num_inputs() ? node.input(port) : nullptr;
    if (value == nullptr || value->IsConstant()) continue;
    return absl::FailedPreconditionError(
        AbslView(StrCat("input ", port, " \"", value->name(), "\" is no constant")));
  }
  return absl::OkStatus();
}

void SetCodeLanes(const KernelArgs& args, int codes, int scales, int64_t matrix,
                  NBitsLanes& weight) {
  const auto& state = static_cast<const PackedConstants&>(*args.state);
  if (const Tensor* words = state.Find(codes); words != nullptr) {
    weight.codes = static_cast<const uint32_t*>(words->data()) +
                   NBitsLanes::At(matrix * weight.groups(), weight.words(), 0);
  }
  const Tensor* of_blocks = state.Find(scales);
  if (of_blocks == nullptr) return;
  const int64_t at = NBitsLanes::At(matrix * weight.groups(), weight.blocks(), 0);
  if (of_blocks->dtype() == DataType::kFloat16) {
    weight.half_scales = static_cast<const Float16*>(of_blocks->data()) + at;
  } else {
    weight.scales = static_cast<const float*>(of_blocks->data()) + at;
  }
}

}  // namespace pagefuse
