// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/quantise/caches/latent_cache.h"

#include <algorithm>
#include <bit>
#include <string>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/op_types.h"
#include "pagefuse/passes/quantise/caches/window_cache.h"

namespace pagefuse {
namespace {

// Of MlaCacheInsert.
constexpr int kRows = 0, kRotated = 1, kSlots = 2, kCache = 3;
constexpr RowCachePorts kPorts = {kCache, 0};
// Of what reads the cache.
constexpr int kReadCache = 1;
constexpr int64_t kPublishedKey = 128;  // elements of an index key

std::string SizeText(const Value* rows) {
  return rows && rows->shape() ? rows->shape()->back(0).ToString() : "none";
}

Value* Rounded(GraphBuilder& builder, Value* rows) {
  if (!rows || rows->dtype() == DataType::kBfloat16) return rows;
  Value* rounded = builder.Cast(rows, DataType::kBfloat16);
  rounded->set_dtype(DataType::kBfloat16);
  return rounded;
}

int64_t BlockSizeOf(const Node& insert) {
  return (*insert.input(kCache)->shape())[1].constant().value_or(0);
}

int64_t SizeOf(const Value* rows) {
  return rows && rows->shape() ? rows->shape()->back(0).constant().value_or(0) : 0;
}

// fp8_ds_mla of the cache_use's rows: the published group, or one that divides them. Group 0: none.
GroupedRowFormat LatentFormatOf(const Node& insert) {
  const int64_t latent = SizeOf(insert.input(kRows));
  return Fp8DsMlaRow(latent, SizeOf(insert.input(kRotated)),
                     GroupSizeFor(latent, Fp8DsMlaRow().group));
}

// The op that rotates the queries of scores, or null.
Node* QueryOpOf(const Node& logits) {
  Node* op = logits.input(0)->producer();
  const bool rotates = op && op->Is("IndexerQRopeQuant", "pagefuse") &&
                       op->StringAttribute("format", "fp8").value_or("") == "none";
  return rotates ? op : nullptr;
}

}  // namespace

bool ChangesSharedRows(const CacheUse& cache_use) {
  const Node& insert = *cache_use.insert;
  if (WritesWindowRows(insert) || WritesCompressedRows(insert)) return ChangesWindowRows(cache_use);
  if (!insert.Is("MlaCacheInsert", "pagefuse") || cache_use.choice.changes_nothing()) return false;
  return insert.StringAttribute("format", "bf16").value_or("") == "bf16" &&
         insert.input(kCache)->dtype() != cache_use.choice.stored;
}

absl::Status CheckLatentRows(const CacheUse& cache_use) {
  const Node& insert = *cache_use.insert;
  if (!cache_use.choice.takes_latent_rows()) {
    return CacheUseError(cache_use, insert, "expected keys and values of heads, got latent rows");
  }
  if (WritesWindowRows(insert)) return CheckWindowRows(cache_use);
  PF_RETURN_IF_ERROR(CheckRowCache(insert, kPorts, {"SparseMlaAttention", kReadCache}));
  for (const Use& use : insert.output(0)->uses()) {
    PF_RETURN_IF_ERROR(CheckCompressedRows(*use.node));
  }
  if (!cache_use.choice.grouped()) return absl::OkStatus();
  const Value *rows = insert.input(kRows), *rotated = insert.input(kRotated);
  if (LatentFormatOf(insert).group > 0 && SizeOf(rotated) > 0) return absl::OkStatus();
  return CacheUseError(cache_use, insert,
                       StrCat("fp8_ds_mla: expected latent rows of a multiple of 8 beside rotated "
                              "parts, got ",
                              SizeText(rows), " and ", SizeText(rotated)));
}

void StoreLatentRows(Graph& graph, const CacheUse& cache_use) {
  Node* insert = cache_use.insert;
  if (WritesWindowRows(*insert)) return StoreWindowRows(cache_use);
  GraphBuilder builder(graph, insert, insert->output(0)->name());
  const GroupedRowFormat rows = LatentFormatOf(*insert);
  for (int i : {kRows, kRotated}) insert->SetInput(i, Rounded(builder, insert->input(i)));
  if (!cache_use.choice.grouped()) {
    for (const Use& use : insert->output(0)->uses()) StoreCompressedRows(*use.node);
    return RetypeRowCache(*insert, kPorts, DataType::kBfloat16);
  }
  RetypeRowCache(*insert, kPorts, DataType::kUint8, {BlockSizeOf(*insert), rows.TokenBytes()});
  Attributes written = {{"format", "fp8_ds_mla"}}, read = written;
  if (rows != Fp8DsMlaRow()) {
    written.Add("quant_group_size", rows.group);
    read.Add("rope_size", rows.plain);
    read.Add("quant_group_size", rows.group);
  }
  written.SetOn(*insert);
  for (const Use& use : insert->output(0)->uses()) read.SetOn(*use.node);
}

bool WritesIndexKeys(const Node& insert) {
  return IsAnyOf(insert, {"MlaCacheInsert", "IndexerKQuantInsert", "CompressCacheInsert"},
                 "pagefuse") &&
         std::ranges::any_of(insert.output(0)->uses(), [](const Use& use) {
           return IsAnyOf(*use.node, {"PagedMqaLogits", "PagedIndexerTopK"}, "pagefuse");
         });
}

const Node* RowsChosenBy(const Node& index_insert) {
  constexpr int kSteps = 4;  // scores, places, slots, attention
  const Node* node = &index_insert;
  for (int i = 0; i < kSteps; ++i) {
    const auto uses = node->output(0)->uses();
    const auto next =
        std::ranges::find_if(uses, [](const Use& use) { return use.node->domain() == "pagefuse"; });
    if (next == uses.end()) return nullptr;
    node = next->node;
    if (node->Is("SparseMlaAttention", "pagefuse")) return node->input(kReadCache)->producer();
  }
  return nullptr;
}

absl::Status CheckIndexSize(const CacheUse& cache_use, const Value* rows) {
  if (!cache_use.choice.grouped()) return absl::OkStatus();
  const bool packed = cache_use.choice.grouped_bits == 4;
  const int64_t unit = packed ? IndexerMxfp4Row(0).group : 1;
  const int64_t size = SizeOf(rows);
  if (cache_use.hadamard && !std::has_single_bit(static_cast<uint64_t>(size))) {
    return CacheUseError(
        cache_use, *cache_use.insert,
        StrCat("indexer_hadamard: expected index keys of a power of two, got ", SizeText(rows)));
  }
  if (size > 0 && size % unit == 0) return absl::OkStatus();
  return CacheUseError(cache_use, *cache_use.insert,
                       StrCat(packed ? "indexer_mxfp4: expected index keys of a multiple of 32"
                                     : "indexer_fp8: expected index keys of a known size",
                              ", got ", SizeText(rows)));
}

absl::Status CheckIndexQueries(const CacheUse& cache_use, const Value& keys) {
  if (!cache_use.hadamard) return absl::OkStatus();
  for (const Use& use : keys.uses()) {
    if (QueryOpOf(*use.node)) continue;
    const Value* q = use.node->input(0);
    return CacheUseError(
        cache_use, *use.node,
        StrCat("indexer_hadamard: expected queries of IndexerQRopeQuant, got \"", q->name(),
               "\" of ", q->producer() ? q->producer()->Description() : "the graph's inputs"));
  }
  return absl::OkStatus();
}

void StoreIndexQueries(const CacheUse& cache_use, Node& logits) {
  const bool packed = cache_use.choice.grouped_bits == 4;
  logits.SetAttribute("format", MakeAttribute(std::string(packed ? "mxfp4" : "fp8")));
  Node* queries = QueryOpOf(logits);
  if (!queries) return;
  if (cache_use.hadamard) queries->SetAttribute("hadamard", MakeAttribute(int64_t{1}));
  // Scores over keys of 4 bits are those of queries that are numbers.
  const Value& codes = *queries->output(0);
  if (packed || !cache_use.codes_queries || codes.uses().size() != 1 || codes.is_output()) return;
  // As bytes, like those of the cache: files of older opsets have no other.
  Attributes{{"format", "fp8"}, {"fp8_storage", "uint8"}}.SetOn(*queries);
  queries->output(0)->set_dtype(DataType::kUint8);
}

GroupedRowFormat IndexFormatFor(const CacheUse& cache_use, int64_t size) {
  return cache_use.choice.grouped_bits == 4 ? IndexerMxfp4Row(size) : IndexerFp8Row(size, size);
}

absl::Status CheckIndexKeys(const CacheUse& cache_use) {
  const Node& insert = *cache_use.insert;
  if (WritesCompressedRows(insert)) return CheckCompressedKeys(cache_use);
  PF_RETURN_IF_ERROR(CheckRowCache(insert, kPorts, {"PagedMqaLogits", kReadCache}));
  PF_RETURN_IF_ERROR(CheckIndexQueries(cache_use, *insert.output(0)));
  return CheckIndexSize(cache_use, insert.input(kRows));
}

void StoreIndexKeys(Graph& graph, const CacheUse& cache_use) {
  Node* insert = cache_use.insert;
  if (WritesCompressedRows(*insert)) return StoreCompressedKeys(cache_use);
  GraphBuilder builder(graph, insert, insert->output(0)->name());
  const GroupedRowFormat rows = IndexFormatFor(cache_use, SizeOf(insert->input(kRows)));
  Value* keys = Rounded(builder, insert->input(kRows));
  if (!cache_use.choice.grouped()) {
    insert->SetInput(kRows, keys);
    return RetypeRowCache(*insert, kPorts, DataType::kBfloat16);
  }
  RetypeRowCache(*insert, kPorts, DataType::kUint8, {BlockSizeOf(*insert), rows.TokenBytes()});
  Attributes attributes;
  if (cache_use.choice.grouped_bits == 4) {
    attributes.Add("format", "mxfp4");
  } else if (rows != IndexerFp8Row(kPublishedKey, kPublishedKey)) {
    attributes.Add("quant_block_size", rows.coded);
  }
  if (cache_use.hadamard) attributes.Add("hadamard", 1);
  Value* out = builder.AddOurs("IndexerKQuantInsert",
                               {keys, insert->input(kSlots), insert->input(kCache)}, attributes);
  out->set_dtype(DataType::kUint8);
  out->set_shape(insert->output(0)->shape());
  for (const Use& use : insert->output(0)->uses()) StoreIndexQueries(cache_use, *use.node);
  graph.ReplaceAllUses(insert->output(0), out);
  graph.EraseNode(insert);
}

}  // namespace pagefuse
