#include "peer_cases.h"

#include <cstdint>
#include <utility>

#include "indexer_calls.h"
#include "latent_cache_calls.h"
#include "paged_layer.h"
#include "slot_calls.h"
#include "sparse_mla_calls.h"

namespace pagefuse {
namespace {

using Cases = std::vector<OpPeerCase>;

constexpr ModelShape kShape = {"hq32_hk8_d128", 32, 8, 128, 0};
constexpr int64_t kTokens = 256;  // of ops that work token by token

std::string Tokens(int64_t count) { return std::to_string(count) + " tokens"; }

OpPeerCase DecodeCase(const CacheKind& kind) {
  return {"PagedAttention_" + kind.name, "1 token, context 4096",
          [kind] { return PagedAttentionCall(kShape, kind, 1, kPeerContext); }};
}

void AddPagedCaches(Cases& cases) {
  cases.push_back(FloatDecodeCase());
  for (const CacheKind& kind : CacheKinds()) {
    if (kind.format.needs_signs()) continue;  // RopeCacheInsert takes none
    const std::string& name = kind.name;
    cases.push_back(DecodeCase(kind));
    cases.push_back({"PagedCacheInsert_" + name, Tokens(kTokens),
                     [kind] { return PagedCacheInsertCall(kShape, kind, kTokens); }});
    cases.push_back({"RopeCacheInsert_" + name, Tokens(kTokens),
                     [kind] { return RopeCacheInsertCall(kShape, kind, kTokens); }});
  }
  cases.push_back({"PagedAttention_prefill", "256 tokens of 256", [] {
                     return PagedAttentionCall(kShape, NumbersOf(DataType::kBfloat16), kTokens,
                                               kTokens);
                   }});
}

void AddTurboQuant(Cases& cases) {
  for (const TurboQuantPreset& preset : kTurboQuantPresets) {
    constexpr size_t kPrefix = std::string_view("turboquant").size();
    const std::string name(preset.name.substr(kPrefix));  // begins with an underscore
    cases.push_back({"TurboQuantInsert" + name, Tokens(kTokens),
                     [preset] { return TurboQuantInsertCall(kShape, preset, kTokens); }});
    cases.push_back({"TurboQuantAttention" + name, "1 token, context 4096",
                     [preset] { return TurboQuantAttentionCall(kShape, preset, kPeerContext); }});
    cases.push_back({"TurboQuantDequant" + name, Tokens(kPeerContext), [preset] {
                       return TurboQuantDequantCall(kShape, preset, kPeerContext, false);
                     }});
  }
}

void AddIndexer(Cases& cases) {
  cases.push_back({"MqaLogits", "64 queries, 4096 keys", [] { return MqaLogitsCall(64, 4096); }});
  cases.push_back({"PagedMqaLogits", "8 sequences of 4096 keys",
                   [] { return PagedMqaLogitsCall(8, 1, 4096); }});
  cases.push_back({"IndexerTopK", "2048 of 32 x 32768",
                   [] { return IndexerTopKCall(LogitOrder::kRandom, 32, 32768, 2048); }});
  for (const std::string format : {"fp8", "mxfp4"}) {
    cases.push_back({"IndexerQRopeQuant_" + format, Tokens(kTokens),
                     [format] { return IndexerQRopeQuantCall(format, kTokens); }});
  }
  cases.push_back(
      {"IndexerKQuantInsert", Tokens(kTokens), [] { return IndexerKQuantInsertCall(kTokens); }});
  cases.push_back({"IndexerKGather", Tokens(4096), [] { return IndexerKGatherCall(4096); }});
}

void AddLatentCaches(Cases& cases) {
  for (const LatentCacheCase& entry : LatentCacheCases()) {
    cases.push_back({entry.op + "_" + entry.name, Tokens(kTokens), [entry] {
                       auto call = std::make_unique<OpCall>(entry.op);
                       entry.fill(*call, kTokens);
                       return call;
                     }});
  }
  static constexpr SparseMlaShape kListedRows = {.tokens = 1, .heads = 64, .dense = false};
  static constexpr SparseMlaShape kAllRows = {
      .tokens = 1, .heads = 64, .dense = true, .rows = 4096};
  for (const LatentKind& kind : kLatentKinds) {
    const std::string name = std::string("SparseMlaAttention_") + kind.name;
    cases.push_back({name, "1 token, 2048 of 16384 rows",
                     [kind] { return SparseMlaCall(kind, kListedRows, 1); }});
  }
  cases.push_back({"SparseMlaAttention_dense", "1 token, 4096 rows",
                   [] { return SparseMlaCall(kLatentKinds[0], kAllRows, 1); }});
}

void AddSlots(Cases& cases) {
  const std::string size = Tokens(kTokens) + ", 2048 each";
  cases.push_back({"TopKSlots", size, [] { return TopKSlotsCall(kTokens); }});
  cases.push_back({"ReqIndexToSlot", size, [] { return ReqIndexToSlotCall(kTokens); }});
  cases.push_back(
      {"CombineTopKWindow", Tokens(kTokens), [] { return CombineTopKWindowCall(kTokens); }});
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
  AddPagedCaches(cases);
  cases.push_back(
      {"MergeAttnStates", Tokens(kTokens), [] { return MergeAttnStatesCall(kShape, kTokens); }});
  AddIndexer(cases);
  AddSlots(cases);
  AddLatentCaches(cases);
  AddTurboQuant(cases);
  return cases;
}

}  // namespace pagefuse
