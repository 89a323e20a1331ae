// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/schema/bf16_blocks.h"

#include <algorithm>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/tensor/resident_pages.h"
#include "pagefuse/ops/kernels/linalg/packed_bf16.h"

namespace pagefuse {
namespace {

absl::StatusOr<Tensor> PackBlocks(Tensor rows, const PackedMatrices&, Allocator& allocator) {
  const int64_t k = rows.dims().back(), n = rows.dims()[rows.rank() - 2];
  const PackedBf16::Rows matrices{.words = static_cast<const uint16_t*>(rows.data()),
                                  .count = rows.size() / std::max<int64_t>(n * k, 1),
                                  .n = n,
                                  .k = k};
  const bool is_own = &allocator == &HostAllocator() && rows.buffer().use_count() == 1 &&
                      rows.mutable_data() != nullptr;
  if (is_own && PackedBf16::IsWhole(k, n)) {
    PackedBf16::Pack(matrices, static_cast<uint16_t*>(rows.mutable_data()));
    return rows;
  }
  PF_ASSIGN_OR_RETURN(
      Tensor blocks,
      Tensor::Allocate(DataType::kBfloat16, {matrices.count, PackedBf16::Words(k, n)}, allocator));
  PackedBf16::Pack(matrices, static_cast<uint16_t*>(blocks.mutable_data()),
                   [&rows](const uint16_t* begin, int64_t count) {
                     ReleasePages(*rows.buffer(), begin,
                                  static_cast<size_t>(count) * sizeof(uint16_t));
                   });
  return blocks;
}

}  // namespace

constinit const Packing kBf16Blocks{"bf16 blocks", PackBlocks};

const uint16_t* Bf16BlocksOf(const KernelArgs& args, int port) {
  const auto* packed = dynamic_cast<const PackedConstants*>(args.state);
  const Tensor* blocks = packed == nullptr ? nullptr : packed->Find(port);
  return blocks == nullptr ? nullptr : static_cast<const uint16_t*>(blocks->data());
}

}  // namespace pagefuse
