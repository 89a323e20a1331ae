#include "sparse_mla_calls.h"

#include <string>
#include <vector>

#include "pagefuse/ops/kernels/formats/grouped_row.h"
#include "pagefuse/ops/pagefuse/latent/sparse_mla_attention.h"

namespace pagefuse {
namespace {

constexpr int64_t kBlockSize = 64;

GroupedRowFormat FormatOf(const LatentKind& kind) {
  return kind.head_size == 576 ? Fp8DsMlaRow() : Fp8Ue8m0Row();
}

// Rows are copies of a few random ones: what they hold does not change how long it takes.
void AddEncodedRows(OpCall& call, const LatentKind& kind, int64_t num_rows) {
  constexpr int64_t kDistinct = 64;
  std::vector<float> x(kDistinct * kind.head_size);
  std::normal_distribution<float> normal;
  for (float& v : x) v = normal(call.random());
  const GroupedRowFormat format = FormatOf(kind);
  const PagedBytes paged = {num_rows / kBlockSize, kBlockSize,
                            GroupedBlockBytes(format, kBlockSize)};
  std::vector<int64_t> dims = {paged.num_blocks, paged.block_bytes};
  if (kind.head_size == 576) dims = {paged.num_blocks, kBlockSize, format.TokenBytes()};
  const CacheRows rows = GroupedRows(format, paged, call.Input<uint8_t>(kind.cache, dims));
  const std::vector<uint16_t> tail(format.plain, 0x3F80);
  for (int64_t row = 0; row < num_rows; ++row) {
    EncodeGroupedRow(format, x.data() + row % kDistinct * kind.head_size, tail.data(),
                     rows.AtSlot(row, 0));
  }
}

}  // namespace

int64_t LatentKind::RowBytes() const {
  return cache == DataType::kUint8 ? FormatOf(*this).TokenBytes() : head_size * BitWidth(cache) / 8;
}

std::unique_ptr<OpCall> SparseMlaCall(const LatentKind& kind, const SparseMlaShape& shape,
                                      uint32_t seed) {
  auto call = std::make_unique<OpCall>("SparseMlaAttention", seed);
  call->Normal(kind.query, {shape.tokens, shape.heads, kind.head_size});
  if (kind.cache == DataType::kUint8) {
    AddEncodedRows(*call, kind, shape.rows);
  } else {
    call->Normal(kind.cache, {shape.rows / kBlockSize, kBlockSize, kind.head_size});
  }
  if (shape.dense) {
    while (call->num_inputs() < kSparseMlaIn["block_table"]) call->Omit();
    call->BlockTable(1, shape.rows / kBlockSize);
    call->Ints({1}, {static_cast<int32_t>(shape.DenseLength())});
    call->Ints({2}, {0, static_cast<int32_t>(shape.tokens)});
  } else {
    std::vector<int32_t> indices(shape.tokens * kSparseMlaListed);
    for (int32_t& i : indices) i = static_cast<int32_t>(call->random()() % shape.rows);
    call->Ints({shape.tokens, kSparseMlaListed}, indices);
  }
  call->Attribute("format", std::string(kind.format));
  call->Attribute("scale", 0.07f);
  call->set_num_outputs(2);
  return call;
}

}  // namespace pagefuse
