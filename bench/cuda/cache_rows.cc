// SPDX-License-Identifier: Apache-2.0
// Attention over paged caches, and writes into them: 32 query heads and 8 KV heads of 128, unless named.
#include <algorithm>
#include <string>

#include "device_call.h"
#include "rows.h"

#include "pagefuse/ops/kernels/formats/turboquant_format.h"

namespace pagefuse::cuda_bench {
namespace {

constexpr int64_t kBlock = 16;

struct Heads {
  int64_t query = 32, kv = 8, size = 128;
};

// How rows are stored: a mode of PagedAttention.
struct Format {
  const char* mode;
  DataType type;
  Fill fill;
  bool row_scales = false, tensor_scales = false;

  int64_t RowBytes(int64_t size) const { return size * BitWidth(type) / 8 + (row_scales ? 4 : 0); }
};
constexpr Format kFloat32 = {"none", DataType::kFloat, Fill::kFloat};
constexpr Format kBf16 = {"none", DataType::kBfloat16, Fill::kBfloat16};
constexpr Format kFp8 = {"fp8_per_tensor", DataType::kFloat8E4M3FN, Fill::kFloat8, false, true};
constexpr Format kInt8Rows = {"int8_per_token_head", DataType::kInt8, Fill::kBytes, true};
constexpr Format kFp8Rows = {"fp8_per_token_head", DataType::kFloat8E4M3FN, Fill::kFloat8, true};

std::vector<int32_t> Ascending(int64_t count, int64_t step) {
  std::vector<int32_t> values;
  for (int64_t i = 0; i <= count; ++i) values.push_back(static_cast<int32_t>(i * step));
  return values;
}

std::vector<int32_t> Repeated(int64_t value, int64_t count) {
  return std::vector<int32_t>(static_cast<size_t>(count), static_cast<int32_t>(value));
}

CallInput Scalar() { return Random(DataType::kFloat, {1}, Fill::kPositive); }

// The last token of each sequence, or more: whole prompts where `tokens` is the context.
struct Decode {
  int64_t sequences, context;
  Heads heads = {};
  int64_t window = 0;
  int64_t tokens = 1;

  int64_t columns() const { return (context + kBlock - 1) / kBlock; }
  double SeenTokens() const {
    return static_cast<double>(sequences * (window > 0 ? std::min(window, context) : context));
  }
  // Of both products of each pair of a token and a key that it sees.
  double Operations() const {
    double pairs = 0;
    for (int64_t i = context - tokens; i < context; ++i) {
      pairs += static_cast<double>(window > 0 ? std::min(window, i + 1) : i + 1);
    }
    return pairs * static_cast<double>(sequences * heads.query * heads.size * 4);
  }
  CallInput query(const Format& format = kBf16) const {
    return Random(format.type, {sequences * tokens, heads.query, heads.size}, format.fill);
  }
  CallInput starts() const { return Int32s({sequences + 1}, Ascending(sequences, tokens)); }
  CallInput lengths() const { return Int32s({sequences}, Repeated(context, sequences)); }
  CallInput table() const {
    return Int32s({sequences, columns()}, Shuffled(static_cast<int32_t>(sequences * columns()), 1));
  }
};

Measured Attend(const Gpu& gpu, const Decode& decode, const Format& format) {
  const Heads& heads = decode.heads;
  const int64_t blocks = decode.sequences * decode.columns();
  const CallInput query = decode.query(format.type == DataType::kFloat ? kFloat32 : kBf16);
  const CallInput cache = Random(format.type, {blocks, kBlock, heads.kv, heads.size}, format.fill);
  CallSpec spec = {
      .op = "PagedAttention",
      .attributes = {{"kv_quant_mode", std::string(format.mode)},
                     {"sliding_window", decode.window}},
      .inputs = {query, cache, cache, decode.starts(), decode.lengths(), decode.table()}};
  if (format.tensor_scales) spec.inputs.insert(spec.inputs.end(), {Scalar(), Scalar()});
  if (format.row_scales) {
    spec.inputs.resize(9);  // behind the scales of tensors
    const CallInput scales = Random(DataType::kFloat, {blocks, kBlock, heads.kv}, Fill::kPositive);
    spec.inputs.insert(spec.inputs.end(), {scales, scales});
  }
  const double bytes = decode.SeenTokens() * heads.kv * 2 * format.RowBytes(heads.size);
  return {TimeCalls(gpu, spec, static_cast<size_t>(bytes)),
          decode.tokens > 1 ? decode.Operations() : bytes};
}

Measured Insert(const Gpu& gpu, int64_t tokens, const Format& format) {
  const Heads heads;
  const int64_t blocks = tokens / kBlock;
  const CallInput rows =
      Random(DataType::kBfloat16, {tokens, heads.kv, heads.size}, Fill::kBfloat16);
  const CallInput cache = Random(format.type, {blocks, kBlock, heads.kv, heads.size}, format.fill);
  std::vector<int64_t> slots;
  for (const int32_t block : Shuffled(static_cast<int32_t>(blocks), 1)) {
    for (int64_t i = 0; i < kBlock; ++i) slots.push_back(block * kBlock + i);
  }
  CallSpec spec = {
      .op = "PagedCacheInsert",
      .attributes = {{"kv_quant_mode", std::string(format.mode)}},
      .inputs = {rows, rows, cache, cache, Known(Tensor::Of<int64_t>({tokens}, slots))},
      .num_outputs = format.row_scales ? 4 : 2};
  if (format.tensor_scales) spec.inputs.insert(spec.inputs.end(), {Scalar(), Scalar()});
  if (format.row_scales) {
    spec.inputs.resize(7);
    const CallInput scales = Random(DataType::kFloat, {blocks, kBlock, heads.kv}, Fill::kPositive);
    spec.inputs.insert(spec.inputs.end(), {scales, scales});
  }
  const double bytes = static_cast<double>(tokens * heads.kv * 2) *
                       static_cast<double>(heads.size * 2 + format.RowBytes(heads.size));
  return {TimeCalls(gpu, spec, static_cast<size_t>(bytes)), bytes};
}

Measured AttendSlots(const Gpu& gpu, const Decode& decode, const TurboQuantPreset& preset) {
  const Heads& heads = decode.heads;
  const TurboQuantFormat format = {preset.key_bits, preset.value_bits, heads.size};
  const int64_t blocks = decode.sequences * decode.columns();
  const CallSpec spec = {
      .op = "TurboQuantAttention",
      .attributes = {{"key_bits", int64_t{preset.key_bits}},
                     {"value_bits", int64_t{preset.value_bits}},
                     {"norm_correction", int64_t{preset.norm_correction}}},
      .inputs = {decode.query(),
                 Random(DataType::kUint8, {blocks, kBlock, heads.kv, format.SlotBytes()},
                        Fill::kHalfBytes),
                 decode.table(), decode.lengths()}};
  const double bytes = decode.SeenTokens() * static_cast<double>(heads.kv * format.SlotBytes());
  return {TimeCalls(gpu, spec, static_cast<size_t>(bytes)), bytes};
}

Measured InsertSlots(const Gpu& gpu, int64_t tokens, const TurboQuantPreset& preset) {
  const Heads heads;
  const TurboQuantFormat format = {preset.key_bits, preset.value_bits, heads.size};
  const int64_t blocks = tokens / kBlock;
  const CallInput rows =
      Random(DataType::kBfloat16, {tokens, heads.kv, heads.size}, Fill::kBfloat16);
  std::vector<int64_t> slots;
  for (int64_t i = 0; i < tokens; ++i) slots.push_back(i);
  const CallSpec spec = {
      .op = "TurboQuantInsert",
      .attributes = {{"key_bits", int64_t{preset.key_bits}},
                     {"value_bits", int64_t{preset.value_bits}}},
      .inputs = {
          rows, rows,
          Random(DataType::kUint8, {blocks, kBlock, heads.kv, format.SlotBytes()}, Fill::kBytes),
          Known(Tensor::Of<int64_t>({tokens}, slots))}};
  const double bytes = static_cast<double>(tokens * heads.kv) *
                       static_cast<double>(heads.size * 4 + format.SlotBytes());
  return {TimeCalls(gpu, spec, static_cast<size_t>(bytes)), bytes};
}

Measured Merge(const Gpu& gpu, int64_t tokens, int64_t heads, int64_t size) {
  const CallInput result = Random(DataType::kBfloat16, {tokens, heads, size}, Fill::kBfloat16);
  const CallInput lse = Random(DataType::kFloat, {heads, tokens}, Fill::kFloat);
  const CallSpec spec = {
      .op = "MergeAttnStates", .inputs = {result, lse, result, lse}, .num_outputs = 2};
  const double bytes = 3.0 * tokens * heads * (2.0 * size + 4);
  return {TimeCalls(gpu, spec, static_cast<size_t>(bytes)), bytes};
}

void AddDecodeRows(std::vector<Row>& rows) {
  const auto add = [&](const std::string& name, Target target, const Decode& decode,
                       const Format& format) {
    rows.push_back({name, target, [=](const Gpu& gpu) { return Attend(gpu, decode, format); }});
  };
  add("decode B64 8192 bf16", {.bound = Bound::kCopy, .share = 0.93}, {64, 8192}, kBf16);
  add("decode B64 8192 float32", {.bound = Bound::kCopy, .share = 0.6}, {64, 8192}, kFloat32);
  add("decode B64 8192 fp8", {.bound = Bound::kCopy, .share = 0.84}, {64, 8192}, kFp8);
  add("decode B64 8192 int8 per token-head", {.bound = Bound::kCopy, .share = 0.88}, {64, 8192},
      kInt8Rows);
  add("decode B64 8192 fp8 per token-head", {.bound = Bound::kCopy, .share = 0.88}, {64, 8192},
      kFp8Rows);
  add("decode B8 8192 bf16", {.bound = Bound::kCopy, .share = 0.88}, {8, 8192}, kBf16);
  add("decode B8 8192 int8 per token-head", {.bound = Bound::kCopy, .us = 55}, {8, 8192},
      kInt8Rows);
  add("decode B1 8192 bf16", {.bound = Bound::kCopy, .us = 16}, {1, 8192}, kBf16);
  add("decode B1 8192 float32", {.bound = Bound::kCopy, .us = 32}, {1, 8192}, kFloat32);
  add("decode B1 8192 int8 per token-head", {.bound = Bound::kCopy, .us = 20}, {1, 8192},
      kInt8Rows);
  const Heads gemma = {.query = 16, .kv = 8, .size = 256};
  add("decode B32 window 1024 Hq16 D256 bf16", {.bound = Bound::kCopy, .share = 0.80},
      {32, 8192, gemma, 1024}, kBf16);
  add("decode B32 window 1024 Hq16 D256 fp8", {.bound = Bound::kCopy, .share = 0.70},
      {32, 8192, gemma, 1024}, kFp8);
  const Heads small = {.query = 4, .kv = 1, .size = 256};
  add("decode B1 1024 Hq4 Hk1 D256 bf16", {.bound = Bound::kCopy, .us = 6}, {1, 1024, small},
      kBf16);
  add("decode B1 1024 Hq4 Hk1 D256 float32", {.bound = Bound::kCopy, .us = 9}, {1, 1024, small},
      kFloat32);
  add("decode B1 1024 window 512 Hq4 Hk1 D256 bf16", {.bound = Bound::kCopy, .us = 6},
      {1, 1024, small, 512}, kBf16);
  add("prompt B1 4096 bf16 Hq32 Hk8 D128", {.bound = Bound::kProduct, .share = 0.32},
      {.sequences = 1, .context = 4096, .tokens = 4096}, kBf16);
  add("prompt B4 2048 window 1024 Hq16 Hk8 D256 bf16", {.bound = Bound::kProduct, .share = 0.25},
      {4, 2048, gemma, 1024, 2048}, kBf16);
}

void AddTurboQuantRows(std::vector<Row>& rows) {
  const auto name_of = [](const TurboQuantPreset& preset) {
    return std::string(preset.name.substr(std::string_view("turboquant_").size()));
  };
  // By preset: k8v4, 4bit_nc, k3v4_nc, 3bit_nc.
  const auto share_of = [](const TurboQuantPreset& preset) {
    if (preset.key_bits == 8) return 0.71;
    if (preset.key_bits == 4) return 0.75;
    return preset.value_bits == 4 ? 0.61 : 0.53;
  };
  for (const TurboQuantPreset& preset : kTurboQuantPresets) {
    rows.push_back({"decode B64 8192 TurboQuant " + name_of(preset),
                    {.bound = Bound::kCopy, .share = share_of(preset)},
                    [&preset](const Gpu& gpu) {
                      return AttendSlots(gpu, {64, 8192}, preset);
                    }});
    if (preset.key_bits != 4) continue;
    rows.push_back({"decode B8 8192 TurboQuant " + name_of(preset),
                    {.bound = Bound::kCopy, .us = 40},
                    [&preset](const Gpu& gpu) {
                      return AttendSlots(gpu, {8, 8192}, preset);
                    }});
    rows.push_back({"decode B1 8192 TurboQuant " + name_of(preset),
                    {.bound = Bound::kCopy, .us = 16},
                    [&preset](const Gpu& gpu) {
                      return AttendSlots(gpu, {1, 8192}, preset);
                    }});
  }
  for (const TurboQuantPreset& preset : kTurboQuantPresets) {
    rows.push_back({"insert T4096 TurboQuant " + name_of(preset),
                    {.bound = Bound::kCopy, .us = 10},
                    [&preset](const Gpu& gpu) { return InsertSlots(gpu, 4096, preset); }});
  }
}

}  // namespace

void AddCacheRows(std::vector<Row>& rows) {
  AddDecodeRows(rows);
  AddTurboQuantRows(rows);
  for (const auto& [name, format] : {std::pair("insert T4096 bf16", kBf16),
                                     {"insert T4096 fp8", kFp8},
                                     {"insert T4096 int8 per token-head", kInt8Rows},
                                     {"insert T4096 fp8 per token-head", kFp8Rows}}) {
    rows.push_back({name, {.bound = Bound::kCopy, .us = 10}, [format = format](const Gpu& gpu) {
                      return Insert(gpu, 4096, format);
                    }});
  }
  rows.push_back({"MergeAttnStates T4096 H32 D128",
                  {.bound = Bound::kCopy, .us = 29},
                  [](const Gpu& gpu) { return Merge(gpu, 4096, 32, 128); }});
}

}  // namespace pagefuse::cuda_bench
