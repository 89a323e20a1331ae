// SPDX-License-Identifier: Apache-2.0
// SparseMlaAttention over one layer's latent cache: prefill and decode, of listed rows and of all.
#include <string>
#include <vector>

#include "op_cases.h"

#include "pagefuse/ops/kernels/formats/grouped_row.h"
#include "pagefuse/ops/pagefuse/latent/sparse_mla_attention.h"

namespace pagefuse {
namespace {

constexpr int64_t kBlockSize = 64, kValueSize = 512;

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

std::unique_ptr<OpCall> SparseMlaCall(const LatentKind& kind, const SparseMlaShape& shape) {
  auto call = std::make_unique<OpCall>("SparseMlaAttention");
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

void AddSparseMlaCases(OpCases& cases) {
  const auto add = [&](const LatentKind& kind, const SparseMlaShape& shape) {
    const bool decode = shape.tokens <= 8;
    int64_t pairs = shape.tokens * kSparseMlaListed;  // of a token and a row that it sees
    if (shape.dense) {
      const int64_t context = shape.DenseLength() - shape.tokens;
      pairs = shape.tokens * context + shape.tokens * (shape.tokens + 1) / 2;
    }
    const int64_t head_flops = 2 * (kind.head_size + kValueSize);
    const Work work = {.bytes = decode ? pairs * kind.RowBytes() : 0,
                       .flops = static_cast<double>(pairs * shape.heads * head_flops),
                       .bf16 = kind.query == DataType::kBfloat16};
    cases.push_back({"SparseMlaAttention",
                     std::string(decode ? "decode/" : "prefill/") +
                         (shape.dense ? "dense/" : "listed/") + kind.name + "/tokens_" +
                         std::to_string(shape.tokens) + "/heads_" + std::to_string(shape.heads),
                     [=](int64_t) { return SparseMlaCall(kind, shape); },
                     [=](int64_t) { return work; }});
    cases.back().layers = decode ? SeriesLength(shape.rows * kind.RowBytes()) : 2;
  };
  for (const LatentKind& kind : kLatentKinds) {
    for (const int64_t heads : {16, 64, 128}) {
      for (const int64_t tokens : {512, 1, 4, 8}) add(kind, {tokens, heads, false});
    }
    add(kind, {512, 64, true});
    add(kind, {1, 16, true});
  }
}

OpCases AllOpCases() {
  OpCases cases;
  AddPagedCases(cases);
  AddTurboQuantCases(cases);
  AddIndexerCases(cases);
  AddLatentCases(cases);
  AddSparseMlaCases(cases);
  return cases;
}

}  // namespace pagefuse
