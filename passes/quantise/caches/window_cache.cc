// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/quantise/caches/window_cache.h"

#include <algorithm>
#include <string>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/formats/grouped_row.h"
#include "pagefuse/ops/pagefuse/cache/compress_cache_insert.h"
#include "pagefuse/ops/pagefuse/cache/qnorm_rope_kv_insert.h"
#include "pagefuse/ops/pagefuse/latent/sparse_mla_attention.h"
#include "pagefuse/passes/edit/attributes.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/quantise/caches/latent_cache.h"

namespace pagefuse {
namespace {

using pagefuse_ops::kCcIn;
using pagefuse_ops::kQnIn;

constexpr RowCachePorts kWindow = {kQnIn["kv_cache"], pagefuse_ops::kQnOut["kv_cache_out"]};
constexpr RowCachePorts kCompressed = {kCcIn["kv_cache"], pagefuse_ops::kCcOut["kv_cache_out"]};
constexpr CacheReader kAttention = {"SparseMlaAttention", kSparseMlaIn["kv_cache"]};
constexpr CacheReader kAttentionToMore = {"SparseMlaAttention", kSparseMlaIn["extra_kv_cache"]};
constexpr CacheReader kLogits = {"PagedMqaLogits", 1};

std::string FormatOf(const Node& insert) {
  return insert.StringAttribute("format", "fp8_ue8m0").value_or("");
}

int64_t LastDim(const Value& value) {
  return value.shape() ? value.shape()->back(0).constant().value_or(0) : 0;
}

int64_t BlockSizeOf(const Node& insert, const RowCachePorts& ports) {
  return (*insert.input(ports.in)->shape())[1].constant().value_or(0);
}

// fp8_ue8m0 of the cache_use's rows: the published group, or one that divides them. Group 0: none.
GroupedRowFormat RowFormatOf(const Node& insert) {
  const int64_t rotated = LastDim(*insert.input(kQnIn["cos_sin"]));
  const int64_t coded = LastDim(*insert.input(kWindow.in)) - rotated;
  return Fp8Ue8m0Row(coded, rotated, GroupSizeFor(coded, Fp8Ue8m0Row().group));
}

// The attributes that tell codes of rows; those of published sizes are the defaults.
void SetCodes(Node& node, Attributes attributes, const GroupedRowFormat& rows) {
  if (rows.group != Fp8Ue8m0Row().group) attributes.Add("quant_group_size", rows.group);
  attributes.SetOn(node);
}

void StoreCodes(Node& insert, const RowCachePorts& ports, std::string_view block_size_name,
                const GroupedRowFormat& rows) {
  const int64_t block_size = BlockSizeOf(insert, ports);
  SetCodes(insert, {{"format", "fp8_ue8m0"}, {block_size_name, block_size}}, rows);
  RetypeRowCache(insert, ports, DataType::kUint8, {GroupedBlockBytes(rows, block_size)});
}

void StoreNumbers(Node& insert, const RowCachePorts& ports) {
  insert.SetAttribute("format", MakeAttribute(std::string("bf16")));
  RetypeRowCache(insert, ports, DataType::kBfloat16);
}

// Once for each attention: the window has its codes already.
void ReadCodes(Node& attention, int64_t block_size, const GroupedRowFormat& rows) {
  Attributes codes = {{"format", "fp8_ue8m0"}, {"block_size", block_size}};
  if (rows.plain != Fp8Ue8m0Row().plain) codes.Add("rope_size", rows.plain);
  SetCodes(attention, codes, rows);
  Node* insert = CompressedRowsOf(attention);
  if (!insert) return;
  attention.SetAttribute("extra_block_size", MakeAttribute(BlockSizeOf(*insert, kCompressed)));
  StoreCodes(*insert, kCompressed, "kv_block_size", rows);
}

}  // namespace

Node* CompressedRowsOf(const Node& attention) {
  const Value* rows = attention.input(kAttentionToMore.port);
  return rows ? rows->producer() : nullptr;
}

absl::Status CheckCompressedRows(const Node& attention) {
  if (!attention.input(kAttentionToMore.port)) return absl::OkStatus();
  const Node* insert = CompressedRowsOf(attention);
  if (!insert || !WritesCompressedRows(*insert) || FormatOf(*insert) != "none") {
    return absl::FailedPreconditionError(
        StrCat("quantise-kv-cache: ", attention.Description(), ": input ", kAttentionToMore.port,
               ": expected rows of CompressCacheInsert <format = none>, got \"",
               attention.input(kAttentionToMore.port)->name(), "\""));
  }
  return CheckRowCache(*insert, kCompressed, kAttentionToMore);
}

void StoreCompressedRows(const Node& attention) {
  if (Node* insert = CompressedRowsOf(attention)) StoreNumbers(*insert, kCompressed);
}

bool WritesWindowRows(const Node& insert) { return insert.Is("QNormRopeKvInsert", "pagefuse"); }

bool WritesCompressedRows(const Node& insert) {
  return insert.Is("CompressCacheInsert", "pagefuse");
}

bool ReadsCompressedRows(const Node& insert) {
  const std::vector<Use>& uses = insert.output(kWindow.out)->uses();
  return std::ranges::any_of(uses, [](const Use& use) {
    return use.node->Is(kAttention.op, "pagefuse") && use.node->input(kAttentionToMore.port);
  });
}

bool ChangesWindowRows(const CacheUse& cache_use) {
  const int cache = WritesWindowRows(*cache_use.insert) ? kWindow.in : kCompressed.in;
  return !cache_use.choice.changes_nothing() && FormatOf(*cache_use.insert) == "none" &&
         cache_use.insert->input(cache)->dtype() != cache_use.choice.stored;
}

absl::Status CheckWindowRows(const CacheUse& cache_use) {
  const Node& insert = *cache_use.insert;
  PF_RETURN_IF_ERROR(CheckRowCache(insert, kWindow, kAttention));
  for (const Use& use : insert.output(kWindow.out)->uses()) {
    PF_RETURN_IF_ERROR(CheckCompressedRows(*use.node));
  }
  if (!cache_use.choice.grouped() || RowFormatOf(insert).group > 0) return absl::OkStatus();
  return CacheUseError(
      cache_use, insert,
      StrCat("fp8_ue8m0: expected rows of a multiple of 8 before their rotated part, got ",
             LastDim(*insert.input(kWindow.in)), " with ", LastDim(*insert.input(kQnIn["cos_sin"])),
             " rotated"));
}

void StoreWindowRows(const CacheUse& cache_use) {
  Node& insert = *cache_use.insert;
  const GroupedRowFormat rows = RowFormatOf(insert);
  const int64_t block_size = BlockSizeOf(insert, kWindow);
  if (cache_use.choice.grouped()) {
    StoreCodes(insert, kWindow, "block_size", rows);
  } else {
    StoreNumbers(insert, kWindow);
  }
  for (const Use& use : insert.output(kWindow.out)->uses()) {
    if (cache_use.choice.grouped()) {
      ReadCodes(*use.node, block_size, rows);
    } else {
      StoreCompressedRows(*use.node);
    }
  }
}

absl::Status CheckCompressedKeys(const CacheUse& cache_use) {
  PF_RETURN_IF_ERROR(CheckRowCache(*cache_use.insert, kCompressed, kLogits));
  PF_RETURN_IF_ERROR(CheckIndexQueries(cache_use, *cache_use.insert->output(kCompressed.out)));
  return CheckIndexSize(cache_use, cache_use.insert->input(kCcIn["rms_weight"]));
}

void StoreCompressedKeys(const CacheUse& cache_use) {
  Node& insert = *cache_use.insert;
  if (!cache_use.choice.grouped()) return StoreNumbers(insert, kCompressed);
  const bool packed = cache_use.choice.grouped_bits == 4;
  const GroupedRowFormat rows =
      IndexFormatFor(cache_use, LastDim(*insert.input(kCcIn["rms_weight"])));
  const int64_t block_size = BlockSizeOf(insert, kCompressed);
  Attributes codes = {{"format", packed ? "indexer_mxfp4" : "indexer_fp8"},
                      {"kv_block_size", block_size}};
  if (cache_use.hadamard) codes.Add("hadamard", 1);
  codes.SetOn(insert);
  RetypeRowCache(insert, kCompressed, DataType::kUint8, {block_size, rows.TokenBytes()});
  for (const Use& use : insert.output(kCompressed.out)->uses())
    StoreIndexQueries(cache_use, *use.node);
}

}  // namespace pagefuse
