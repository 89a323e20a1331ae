// The calls of paged_layer.h over TurboQuant caches.
#include <cstring>
#include <vector>

#include "paged_layer.h"

namespace pagefuse {
namespace {

TurboQuantFormat FormatOf(const ModelShape& shape, const TurboQuantPreset& preset) {
  return {preset.key_bits, preset.value_bits, shape.head_size};
}

// Slots are copies of a few random ones: what they hold does not change how long it takes.
void AddSlots(OpCall& call, const ModelShape& shape, const TurboQuantPreset& preset,
              int64_t blocks) {
  const TurboQuantFormat format = FormatOf(shape, preset);
  const int64_t bytes = format.SlotBytes();
  const int64_t slots = blocks * kBenchBlockSize * shape.kv_heads;
  auto* data =
      call.Input<uint8_t>(DataType::kUint8, {blocks, kBenchBlockSize, shape.kv_heads, bytes});
  TurboQuantTables tables;
  if (format.has_centroids()) {
    tables.centroids = DefaultCentroids(shape.head_size, preset.key_bits).data();
  }
  std::normal_distribution<float> normal;
  std::vector<float> x(shape.head_size);
  constexpr int64_t kDistinct = 64;
  for (int64_t i = 0; i < slots; ++i) {
    if (i >= kDistinct) {
      std::memcpy(data + i * bytes, data + i % kDistinct * bytes, bytes);
      continue;
    }
    for (float& v : x) v = normal(call.random());
    EncodeTurboQuantKey(format, tables, x.data(), data + i * bytes);
    EncodeTurboQuantValue(format, x.data(), data + i * bytes);
  }
}

void SetBits(OpCall& call, const TurboQuantPreset& preset) {
  call.Attribute("key_bits", int64_t{preset.key_bits});
  call.Attribute("value_bits", int64_t{preset.value_bits});
}

void SetNormCorrection(OpCall& call, const TurboQuantPreset& preset) {
  call.Attribute("norm_correction", int64_t{preset.norm_correction ? 1 : 0});
}

int64_t BlocksFor(int64_t tokens) { return (tokens + kBenchBlockSize - 1) / kBenchBlockSize; }

}  // namespace

int64_t TurboQuantBytes(const ModelShape& shape, const TurboQuantPreset& preset, int64_t tokens) {
  return tokens * shape.kv_heads * FormatOf(shape, preset).SlotBytes();
}

std::unique_ptr<OpCall> TurboQuantAttentionCall(const ModelShape& shape,
                                                const TurboQuantPreset& preset, int64_t length) {
  auto call = std::make_unique<OpCall>("TurboQuantAttention");
  call->Normal(DataType::kBfloat16, {1, shape.heads, shape.head_size});
  AddSlots(*call, shape, preset, BlocksFor(length));
  call->BlockTable(1, BlocksFor(length));
  call->Ints({1}, {static_cast<int32_t>(length)});
  SetBits(*call, preset);
  SetNormCorrection(*call, preset);
  return call;
}

std::unique_ptr<OpCall> TurboQuantInsertCall(const ModelShape& shape,
                                             const TurboQuantPreset& preset, int64_t tokens,
                                             KeyRotation rotation) {
  auto call = std::make_unique<OpCall>("TurboQuantInsert");
  for (int i = 0; i < 2; ++i) {
    call->Normal(DataType::kBfloat16, {tokens, shape.kv_heads, shape.head_size});
  }
  AddSlots(*call, shape, preset, 2 * BlocksFor(tokens));
  call->Slots(tokens, kBenchBlockSize);
  if (rotation == KeyRotation::kGivenMatrix) {
    call->Normal(DataType::kFloat, {shape.head_size, shape.head_size});
  }
  SetBits(*call, preset);
  return call;
}

std::unique_ptr<OpCall> TurboQuantDequantCall(const ModelShape& shape,
                                              const TurboQuantPreset& preset, int64_t length,
                                              bool inverse) {
  auto call = std::make_unique<OpCall>("TurboQuantDequant");
  AddSlots(*call, shape, preset, BlocksFor(length));
  call->BlockTable(1, BlocksFor(length));
  call->Ints({1}, {static_cast<int32_t>(length)});
  SetBits(*call, preset);
  SetNormCorrection(*call, preset);
  call->Attribute("head_size", shape.head_size);
  call->Attribute("inverse_rotate", int64_t{inverse ? 1 : 0});
  return call;
}

}  // namespace pagefuse
