#include "paged_layer.h"

#include <cstring>
#include <string>
#include <vector>

#include "pagefuse/ops/kernels/formats/row_codec.h"

namespace pagefuse {
namespace {

constexpr float kTensorScale = 0.02f;

int64_t BlocksFor(int64_t tokens) { return (tokens + kBenchBlockSize - 1) / kBenchBlockSize; }

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
  const int64_t blocks = BlocksFor(length);
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

std::unique_ptr<OpCall> PagedCacheInsertCall(const ModelShape& shape, const CacheKind& kind,
                                             int64_t tokens) {
  const int64_t blocks = 2 * BlocksFor(tokens);
  auto call = std::make_unique<OpCall>("PagedCacheInsert");
  for (int i = 0; i < 2; ++i) call->Normal(kind.query, {tokens, shape.kv_heads, shape.head_size});
  std::vector<CacheMemory> caches(2);
  for (CacheMemory& cache : caches) cache.rows = AddCache(*call, shape, kind, blocks);
  call->Slots(tokens, kBenchBlockSize);
  AddScales(*call, shape, kind, /*between=*/0, caches, blocks);
  AddSigns(*call, shape, kind);
  call->Attribute("kv_quant_mode", std::string(kind.format.name()));
  if (kind.format.has_row_scales()) call->set_num_outputs(4);
  return call;
}

std::unique_ptr<OpCall> RopeCacheInsertCall(const ModelShape& shape, const CacheKind& kind,
                                            int64_t tokens) {
  const int64_t blocks = 2 * BlocksFor(tokens);
  auto call = std::make_unique<OpCall>("RopeCacheInsert");
  call->Normal(kind.query, {tokens, shape.heads, shape.head_size});
  for (int i = 0; i < 2; ++i) call->Normal(kind.query, {tokens, shape.kv_heads, shape.head_size});
  std::vector<CacheMemory> caches(2);
  for (CacheMemory& cache : caches) cache.rows = AddCache(*call, shape, kind, blocks);
  call->Slots(tokens, kBenchBlockSize);
  call->Range(tokens);
  for (int i = 0; i < 2; ++i) call->Normal(kind.query, {tokens, shape.head_size / 2}, 0.5f);
  for (int i = 0; i < 2; ++i) call->Normal(kind.query, {shape.head_size});
  AddScales(*call, shape, kind, /*between=*/0, caches, blocks);
  call->Attribute("kv_quant_mode", std::string(kind.format.name()));
  if (kind.format.has_row_scales()) call->set_num_outputs(5);
  return call;
}

std::unique_ptr<OpCall> MergeAttnStatesCall(const ModelShape& shape, int64_t tokens) {
  auto call = std::make_unique<OpCall>("MergeAttnStates");
  for (int i = 0; i < 2; ++i) {
    call->Normal(DataType::kBfloat16, {tokens, shape.heads, shape.head_size});
    call->Normal(DataType::kFloat, {shape.heads, tokens});
  }
  return call;
}

int64_t InsertedBytes(const ModelShape& shape, const CacheKind& kind, int64_t tokens) {
  const int64_t source = 2 * shape.kv_heads * shape.head_size * BitWidth(kind.query) / 8;
  return tokens *
         (source + kind.format.BytesPerToken(shape.kv_heads, shape.head_size, shape.head_size));
}

}  // namespace pagefuse
