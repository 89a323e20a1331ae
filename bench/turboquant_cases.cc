// SPDX-License-Identifier: Apache-2.0
// The TurboQuant ops: attention beside PagedAttention over a bfloat16 cache, inserts, dequantisation.
#include <cstring>
#include <string>
#include <vector>

#include "op_cases.h"
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

Part SlotsOf(const ModelShape& shape, const TurboQuantPreset& preset, int64_t blocks) {
  return [=](OpCall& call) { AddSlots(call, shape, preset, blocks); };
}

std::unique_ptr<OpCall> InsertCall(const TurboQuantPreset& preset, int64_t tokens, bool matrix) {
  const ModelShape& shape = kLlama;
  const Part rows = Normal(DataType::kBfloat16, {tokens, shape.kv_heads, shape.head_size});
  const auto rotation = [=](OpCall& call) {
    if (matrix) call.Normal(DataType::kFloat, {shape.head_size, shape.head_size});
  };
  return CallOf(
      "TurboQuantInsert",
      {rows, rows, SlotsOf(shape, preset, 2 * BenchBlocks(tokens)), Slots(tokens, kBenchBlockSize),
       rotation, Attr("key_bits", preset.key_bits), Attr("value_bits", preset.value_bits)});
}

std::unique_ptr<OpCall> DequantCall(const TurboQuantPreset& preset, int64_t length, bool inverse) {
  const int64_t blocks = BenchBlocks(length);
  return CallOf(
      "TurboQuantDequant",
      {SlotsOf(kLlama, preset, blocks), BlockTable(1, blocks),
       Ints({1}, {static_cast<int32_t>(length)}), Attr("key_bits", preset.key_bits),
       Attr("value_bits", preset.value_bits), Attr("norm_correction", preset.norm_correction),
       Attr("head_size", kLlama.head_size), Attr("inverse_rotate", inverse)});
}

void AddPreset(OpCases& cases, const TurboQuantPreset& preset) {
  const std::string name = PresetName(preset);
  const int64_t slots = kLlama.kv_heads * FormatOf(kLlama, preset).SlotBytes();  // of a token
  // Keys and values of 16 bits an element, and slots.
  const auto converted = [=](int64_t tokens) -> Work {
    return {.bytes = tokens * (2 * kLlama.kv_heads * kLlama.head_size * 2 + slots)};
  };
  for (int64_t length = 1024; length <= 32768; length *= 2) {
    cases.push_back({"TurboQuantAttention", name + "/" + std::to_string(length),
                     [=](int64_t) { return TurboQuantAttentionCall(kLlama, preset, length); },
                     [=](int64_t) -> Work { return {.bytes = length * slots}; }});
    cases.back().baseline = [=] {
      return PagedAttentionCall(kLlama, NumbersOf(DataType::kBfloat16), 1, length);
    };
  }
  const bool rotated = preset.key_bits < 8;  // float8 keys are not
  for (const bool matrix : {false, true}) {
    if (matrix && !rotated) continue;
    cases.push_back({"TurboQuantInsert", name + (matrix ? "_given_matrix" : ""),
                     [=](int64_t tokens) { return InsertCall(preset, tokens, matrix); }, converted,
                     kCopiedTokens});
    if (matrix) cases.back().peer_tokens = 0;
  }
  for (const bool inverse : {false, true}) {
    cases.push_back({"TurboQuantDequant",
                     name + (inverse ? "_rotated_back" : ""),
                     [=](int64_t tokens) { return DequantCall(preset, tokens, inverse); },
                     converted,
                     {8192}});
    cases.back().peer_tokens = inverse ? 0 : 4096;
  }
}

}  // namespace

std::unique_ptr<OpCall> TurboQuantAttentionCall(const ModelShape& shape,
                                                const TurboQuantPreset& preset, int64_t length) {
  const int64_t blocks = BenchBlocks(length);
  return CallOf(
      "TurboQuantAttention",
      {Normal(DataType::kBfloat16, {1, shape.heads, shape.head_size}),
       SlotsOf(shape, preset, blocks), BlockTable(1, blocks),
       Ints({1}, {static_cast<int32_t>(length)}), Attr("key_bits", preset.key_bits),
       Attr("value_bits", preset.value_bits), Attr("norm_correction", preset.norm_correction)});
}

void AddTurboQuantCases(OpCases& cases) {
  for (const TurboQuantPreset& preset : kTurboQuantPresets) AddPreset(cases, preset);
}

}  // namespace pagefuse
