// SPDX-License-Identifier: Apache-2.0
#include "peer_cases.h"

#include <utility>

#include "op_cases.h"
#include "paged_layer.h"

namespace pagefuse {
namespace {

using Cases = std::vector<OpPeerCase>;

std::string Tokens(int64_t count) { return std::to_string(count) + " tokens"; }

// The rows of the table whose ops work token by token.
void AddTokenwise(Cases& cases) {
  for (const OpCase& row : AllOpCases()) {
    if (row.tokens.empty() || row.peer_tokens == 0) continue;
    cases.push_back({row.op + (row.variant.empty() ? "" : "_") + row.variant,
                     Tokens(row.peer_tokens),
                     [make = row.make, tokens = row.peer_tokens] { return make(tokens); }});
  }
}

OpPeerCase DecodeCase(const CacheKind& kind) {
  return {"PagedAttention_" + kind.name, "1 token, context 4096",
          [kind] { return PagedAttentionCall(kLlama, kind, 1, kPeerContext); }};
}

void AddAttention(Cases& cases) {
  cases.push_back(FloatDecodeCase());
  for (const CacheKind& kind : CacheKinds()) {
    if (!kind.format.needs_signs()) cases.push_back(DecodeCase(kind));
  }
  cases.push_back({"PagedAttention_prefill", "256 tokens of 256", [] {
                     return PagedAttentionCall(kLlama, NumbersOf(DataType::kBfloat16), kPeerTokens,
                                               kPeerTokens);
                   }});
  for (const TurboQuantPreset& preset : kTurboQuantPresets) {
    cases.push_back({"TurboQuantAttention_" + PresetName(preset), "1 token, context 4096",
                     [preset] { return TurboQuantAttentionCall(kLlama, preset, kPeerContext); }});
  }
  static constexpr SparseMlaShape kListedRows = {.tokens = 1, .heads = 64, .dense = false};
  static constexpr SparseMlaShape kAllRows = {
      .tokens = 1, .heads = 64, .dense = true, .rows = 4096};
  for (const LatentKind& kind : kLatentKinds) {
    cases.push_back({std::string("SparseMlaAttention_") + kind.name, "1 token, 2048 of 16384 rows",
                     [kind] { return SparseMlaCall(kind, kListedRows); }});
  }
  cases.push_back({"SparseMlaAttention_dense", "1 token, 4096 rows",
                   [] { return SparseMlaCall(kLatentKinds[0], kAllRows); }});
}

void AddIndexer(Cases& cases) {
  cases.push_back({"MqaLogits", "64 queries, 4096 keys", [] { return MqaLogitsCall(64, 4096); }});
  cases.push_back({"PagedMqaLogits", "8 sequences of 4096 keys",
                   [] { return PagedMqaLogitsCall(8, 1, 4096); }});
  cases.push_back({"IndexerTopK", "2048 of 32 x 32768",
                   [] { return IndexerTopKCall(LogitOrder::kRandom, 32, 32768); }});
}

}  // namespace

OpPeerCase FloatDecodeCase() {
  CacheKind kind = NumbersOf(DataType::kFloat);
  kind.name = "none_f32";
  return DecodeCase(kind);
}
OpPeerCase Int8DecodeCase() {
  const RowFormat& row = *FindRowFormat(DataType::kInt8, ScaleKind::kRow);
  const CacheFormat format = *CacheFormat::Make(row.mode, DataType::kInt8);
  return DecodeCase({"int8_f32", format, DataType::kInt8, DataType::kFloat});
}

std::vector<OpPeerCase> OpPeerCases() {
  Cases cases;
  AddAttention(cases);
  AddIndexer(cases);
  AddTokenwise(cases);
  return cases;
}

}  // namespace pagefuse
