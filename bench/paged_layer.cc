// SPDX-License-Identifier: Apache-2.0
// PagedAttention, MergeAttnStates and the inserts of keys and values, over each format of a cache.
#include "paged_layer.h"

#include <cstring>
#include <string>
#include <vector>

#include "op_cases.h"

#include "pagefuse/ops/kernels/formats/row_codec.h"

namespace pagefuse {
namespace {

constexpr float kTensorScale = 0.02f;

// The memory of one cache and of its scales.
struct CacheMemory {
  uint8_t* rows = nullptr;
  float* scales = nullptr;  // null: none
};

uint8_t* AddCache(OpCall& call, const ModelShape& shape, const CacheKind& kind, int64_t blocks) {
  const int64_t elements = kind.format.StoredElements(shape.head_size);
  return call.Input<uint8_t>(kind.type, {blocks, kBenchBlockSize, shape.kv_heads, elements});
}

// Ports of scales: of the tensor for keys and values, then (after `between` others) of the rows.
void AddScales(OpCall& call, const ModelShape& shape, const CacheKind& kind, int between,
               std::vector<CacheMemory>& caches, int64_t blocks) {
  const CacheFormat format = kind.format;
  for (int i = 0; i < 2; ++i) {
    if (format.has_tensor_scale()) {
      call.Floats({1}, {kTensorScale});
    } else {
      call.Omit();
    }
  }
  for (int i = 0; i < between; ++i) call.Omit();
  for (CacheMemory& cache : caches) {
    if (format.has_row_scales()) {
      cache.scales = call.Input<float>(DataType::kFloat, {blocks, kBenchBlockSize, shape.kv_heads});
    } else {
      call.Omit();
    }
  }
}

// Of the Hadamard transform, where the format has them: the last port.
void AddSigns(OpCall& call, const ModelShape& shape, const CacheKind& kind) {
  if (!kind.format.needs_signs()) return;
  const int others = static_cast<int>(call.op().inputs().size()) - call.num_inputs() - 1;
  for (int i = 0; i < others; ++i) call.Omit();
  call.Floats({shape.head_size}, std::vector<float>(shape.head_size, 1));
}

// Rows are copies of a few random ones: what they hold does not change how long it takes.
void FillCache(OpCall& call, const ModelShape& shape, const CacheKind& kind,
               const CacheMemory& cache, int64_t blocks) {
  const CacheFormat format = kind.format;
  const int64_t rows = blocks * kBenchBlockSize * shape.kv_heads;
  const int64_t row_bytes = format.RowBytes(shape.head_size);
  const std::vector<float> signs(shape.head_size, 1);
  std::vector<float> x(shape.head_size);
  std::normal_distribution<float> normal;
  constexpr int64_t kDistinct = 64;
  float unused = 0;
  for (int64_t row = 0; row < rows; ++row) {
    uint8_t* codes = cache.rows + row * row_bytes;
    float* scale = cache.scales != nullptr ? cache.scales + row : &unused;
    if (row >= kDistinct) {
      std::memcpy(codes, cache.rows + row % kDistinct * row_bytes, row_bytes);
      if (cache.scales != nullptr) *scale = cache.scales[row % kDistinct];
      continue;
    }
    for (float& v : x) v = normal(call.random());
    EncodeRow(format, {.tensor_scale = kTensorScale, .rht_signs = signs.data()}, x.data(),
              shape.head_size, {codes, reinterpret_cast<uint8_t*>(scale)});
  }
}

constexpr ModelShape kGemmaLocal = {"gemma_hq4_hk1_d256_w512", 4, 1, 256, 512};
constexpr ModelShape kGemmaGlobal = {"gemma_hq4_hk1_d256", 4, 1, 256, 0};

// PagedCacheInsert of `tokens` tokens into a cache with twice as many slots, or RopeCacheInsert with
// norms.
std::unique_ptr<OpCall> InsertCall(const CacheKind& kind, int64_t tokens, bool rotates) {
  const ModelShape& shape = kLlama;
  const int64_t blocks = 2 * BenchBlocks(tokens);
  auto call = std::make_unique<OpCall>(rotates ? "RopeCacheInsert" : "PagedCacheInsert");
  if (rotates) call->Normal(kind.query, {tokens, shape.heads, shape.head_size});
  for (int i = 0; i < 2; ++i) call->Normal(kind.query, {tokens, shape.kv_heads, shape.head_size});
  std::vector<CacheMemory> caches(2);
  for (CacheMemory& cache : caches) cache.rows = AddCache(*call, shape, kind, blocks);
  call->Slots(tokens, kBenchBlockSize);
  if (rotates) {
    call->Range(tokens);
    for (int i = 0; i < 2; ++i) call->Normal(kind.query, {tokens, shape.head_size / 2}, 0.5f);
    for (int i = 0; i < 2; ++i) call->Normal(kind.query, {shape.head_size});
  }
  AddScales(*call, shape, kind, /*between=*/0, caches, blocks);
  AddSigns(*call, shape, kind);
  call->Attribute("kv_quant_mode", std::string(kind.format.name()));
  if (kind.format.has_row_scales()) call->set_num_outputs(rotates ? 5 : 4);
  return call;
}

// A query that is rotated goes into an output of its own.
void AddInserts(OpCases& cases, const CacheKind& kind) {
  const int64_t head_bytes = kLlama.head_size * BitWidth(kind.query) / 8;
  for (const bool rotates : {false, true}) {
    if (rotates && kind.format.needs_signs()) continue;  // RopeCacheInsert takes none
    const int64_t heads = 2 * kLlama.kv_heads + (rotates ? 2 * kLlama.heads : 0);
    cases.push_back({rotates ? "RopeCacheInsert" : "PagedCacheInsert",
                     kind.name,
                     [=](int64_t tokens) { return InsertCall(kind, tokens, rotates); },
                     [=](int64_t tokens) -> Work {
                       return {.bytes = tokens * heads * head_bytes +
                                        VisibleBytes(kLlama, kind, tokens)};
                     },
                     kCopiedTokens,
                     {"hwy"}});
    if (!rotates) cases.back().kernels.push_back("reference");
    // Peers have no op for the signs either.
    if (kind.format.needs_signs()) cases.back().peer_tokens = 0;
  }
}

void AddAttention(OpCases& cases, const CacheKind& kind) {
  const auto add = [&](bool decode, const ModelShape& shape, int64_t length) {
    double pairs = 0;  // of a query and a key that it sees
    for (int64_t p = 0; p < length; ++p) {
      pairs += static_cast<double>(shape.window > 0 ? std::min(p + 1, shape.window) : p + 1);
    }
    const double flops = pairs * static_cast<double>(shape.heads * shape.head_size) * 4;
    const Work work =
        decode ? Work{.bytes = VisibleBytes(shape, kind, length)} : Work{.flops = flops};
    cases.push_back(
        {"PagedAttention",
         std::string(decode ? "decode/" : "prefill/") + shape.name + "/" + kind.name + "/" +
             std::to_string(length),
         [=](int64_t) { return PagedAttentionCall(shape, kind, decode ? 1 : length, length); },
         [=](int64_t) { return work; }});
    if (!decode) cases.back().layers = 4;
  };
  for (int64_t length = 1024; length <= 32768; length *= 2) add(true, kLlama, length);
  add(true, kGemmaLocal, 2048);
  add(true, kGemmaGlobal, 8192);
  add(false, kGemmaLocal, 512);
  add(false, kLlama, 1024);
}

}  // namespace

std::vector<CacheKind> CacheKinds() {
  std::vector<CacheKind> kinds;
  for (const RowFormat& row : RowFormats()) {
    CacheKind kind = NumbersOf(DataType::kBfloat16);
    kind.name = row.name;
    if (row.scales != ScaleKind::kNone) {
      kind.type = row.types.front();
      kind.format = *CacheFormat::Make(row.mode, kind.type);
    }
    kinds.push_back(kind);
  }
  return kinds;
}

CacheKind NumbersOf(DataType type) {
  return {std::string(DataTypeName(type)), {.element = type}, type, type};
}

std::unique_ptr<OpCall> PagedAttentionCall(const ModelShape& shape, const CacheKind& kind,
                                           int64_t queries, int64_t length) {
  const int64_t blocks = BenchBlocks(length);
  auto call = std::make_unique<OpCall>("PagedAttention");
  call->Normal(kind.query, {queries, shape.heads, shape.head_size});
  std::vector<CacheMemory> caches(2);
  for (CacheMemory& cache : caches) cache.rows = AddCache(*call, shape, kind, blocks);
  call->Ints({2}, {0, static_cast<int32_t>(queries)});
  call->Ints({1}, {static_cast<int32_t>(length)});
  call->BlockTable(1, blocks);
  AddScales(*call, shape, kind, /*between=*/1, caches, blocks);
  AddSigns(*call, shape, kind);
  for (const CacheMemory& cache : caches) FillCache(*call, shape, kind, cache, blocks);
  call->Attribute("kv_quant_mode", std::string(kind.format.name()));
  call->Attribute("sliding_window", shape.window);
  return call;
}

int64_t VisibleBytes(const ModelShape& shape, const CacheKind& kind, int64_t length) {
  const int64_t visible = shape.window > 0 ? std::min(length, shape.window) : length;
  return visible * kind.format.BytesPerToken(shape.kv_heads, shape.head_size, shape.head_size);
}

void AddPagedCases(OpCases& cases) {
  for (const CacheKind& kind : CacheKinds()) AddInserts(cases, kind);
  std::vector<CacheKind> kinds = CacheKinds();
  kinds.push_back(NumbersOf(DataType::kFloat));
  kinds.push_back(NumbersOf(DataType::kFloat16));
  for (const CacheKind& kind : kinds) AddAttention(cases, kind);
  const auto merge = [](int64_t tokens) {
    const Part rows = Normal(DataType::kBfloat16, {tokens, kLlama.heads, kLlama.head_size});
    const Part sums = Normal(DataType::kFloat, {kLlama.heads, tokens});
    return CallOf("MergeAttnStates", {rows, sums, rows, sums});
  };
  cases.push_back({"MergeAttnStates", "", merge,
                   [=](int64_t tokens) -> Work { return {.bytes = merge(tokens)->TensorBytes()}; },
                   kCopiedTokens});
}

}  // namespace pagefuse
