// SPDX-License-Identifier: Apache-2.0
// SparseMlaAttention in the sizes of DeepSeek V3.2 and V4, of listed rows and of all; and what chooses the
// rows: IndexerTopK, PagedIndexerTopK.
#include <algorithm>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "device_call.h"
#include "rows.h"

#include "pagefuse/ops/kernels/formats/grouped_row.h"

namespace pagefuse::cuda_bench {
namespace {

constexpr int64_t kPage = 64, kValue = 512, kTopK = 2048;

CallInput SameInts(int64_t count, int64_t value) {
  return Int32s({count},
                std::vector<int32_t>(static_cast<size_t>(count), static_cast<int32_t>(value)));
}

// --- SparseMlaAttention ---

// How rows of the latent cache are stored.
struct LatentRows {
  const char* format;
  int64_t size;                                // elements
  std::optional<GroupedRowFormat> codes = {};  // none: bfloat16

  int64_t RowBytes() const { return codes ? codes->TokenBytes() : 2 * size; }
};
LatentRows Bf16Latent() { return {"bf16", 576}; }
LatentRows DsMlaLatent() { return {"fp8_ds_mla", 576, Fp8DsMlaRow()}; }
LatentRows Ue8m0Latent() { return {"fp8_ue8m0", 512, Fp8Ue8m0Row()}; }

void EncodeRandomRows(const GroupedRowFormat& format, const CacheRows& rows, int64_t count) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(format.elements()));
  const std::vector<uint16_t> tail(static_cast<size_t>(format.plain), 0x3F00);  // 0.5
  for (int64_t row = 0; row < count; ++row) {
    for (float& v : x) v = normal(random);
    EncodeGroupedRow(format, x.data(), tail.data(), rows.AtSlot(row, 0));
  }
}

// A cache of so many pages. Under scales of random bytes one row of a list would have all the weight, so the
// codes are those of random numbers, and the pages copies of a few.
CallInput LatentCache(const LatentRows& rows, int64_t pages) {
  if (!rows.codes) {
    return Random(DataType::kBfloat16, {pages, kPage, rows.size}, Fill::kBfloat16);
  }
  const int64_t page_bytes = GroupedBlockBytes(*rows.codes, kPage);
  const int64_t distinct = std::min<int64_t>(pages, 16);
  std::vector<uint8_t> bytes(static_cast<size_t>(pages * page_bytes));
  EncodeRandomRows(*rows.codes, GroupedRows(*rows.codes, {pages, kPage, page_bytes}, bytes.data()),
                   distinct * kPage);
  for (int64_t page = distinct; page < pages; ++page) {
    std::memcpy(bytes.data() + page * page_bytes, bytes.data() + page % distinct * page_bytes,
                static_cast<size_t>(page_bytes));
  }
  const bool in_line = rows.codes->layout == GroupedLayout::kInline;
  const auto dims = in_line ? std::vector<int64_t>{pages, kPage, rows.codes->TokenBytes()}
                            : std::vector<int64_t>{pages, page_bytes};
  return Known(Tensor::Of<uint8_t>(dims, bytes));
}

// `count` different rows for each token, of the `context` rows of its sequence: one that all share, or one
// each.
struct LatentList {
  int64_t count, context;
  bool shared = false;

  int64_t Pages(int64_t tokens) const { return context * (shared ? 1 : tokens) / kPage; }
  CallInput Of(int64_t tokens) const {
    constexpr int64_t kStep = 4099;  // neighbours have other rows
    const std::vector<int32_t> order = Shuffled(static_cast<int32_t>(context), 1);
    std::vector<int32_t> slots;
    slots.reserve(static_cast<size_t>(tokens * count));
    for (int64_t t = 0; t < tokens; ++t) {
      const int64_t base = shared ? 0 : t * context;
      for (int64_t i = 0; i < count; ++i) {
        const int32_t row = order[static_cast<size_t>((t * kStep + i) % context)];
        slots.push_back(static_cast<int32_t>(base) + row);
      }
    }
    return Int32s({tokens, count}, slots);
  }
};

struct LatentSizes {
  LatentRows rows;
  int64_t tokens, heads;
};

// What bounds a call: operations of its two products; bytes of the rows that each token sees, queries and
// results.
struct LatentCall {
  LatentSizes sizes;
  CallSpec spec;
  double operations = 0, bytes = 0;
  double touched = 0;  // bytes; less where tokens share rows

  explicit LatentCall(const LatentSizes& of) : sizes(of) {
    const auto& [rows, tokens, heads] = sizes;
    spec.op = "SparseMlaAttention";
    spec.attributes = {{"format", std::string(rows.format)}, {"scale", 0.07f}};
    spec.inputs = {Random(DataType::kBfloat16, {tokens, heads, rows.size}, Fill::kBfloat16)};
    bytes = touched = 2.0 * static_cast<double>(tokens * heads * (rows.size + kValue));
  }
  // A cache of which each token sees so many rows.
  void AddCache(int64_t pages, int64_t seen) {
    const auto& [rows, tokens, heads] = sizes;
    spec.inputs.push_back(LatentCache(rows, pages));
    const auto pairs = static_cast<double>(tokens * seen);
    operations += 2 * pairs * static_cast<double>(heads * (rows.size + kValue));
    bytes += pairs * static_cast<double>(rows.RowBytes());
    touched +=
        std::min(pairs, static_cast<double>(pages * kPage)) * static_cast<double>(rows.RowBytes());
  }
  void AddList(const LatentList& list) {
    AddCache(list.Pages(sizes.tokens), list.count);
    spec.inputs.push_back(list.Of(sizes.tokens));
  }
  Measured Time(const Gpu& gpu, Bound bound) const {
    return {TimeCalls(gpu, spec, static_cast<size_t>(touched)),
            bound == Bound::kProduct ? operations : bytes};
  }
};

// The second list is V4's, of compressed rows in a cache of their own beside those of the window; then there
// is a sink.
LatentCall Listed(const LatentSizes& sizes, const LatentList& list,
                  const std::optional<LatentList>& more) {
  LatentCall call(sizes);
  call.AddList(list);
  if (!more) return call;
  call.spec.inputs.push_back({});  // topk_lens
  call.spec.inputs.push_back(Random(DataType::kFloat, {sizes.heads}, Fill::kFloat));
  call.AddList(*more);
  return call;
}

// One token of each sequence, which sees all of its rows.
LatentCall AllRows(const LatentSizes& sizes, int64_t context) {
  const int64_t tokens = sizes.tokens, columns = context / kPage, pages = tokens * columns;
  LatentCall call(sizes);
  call.AddCache(pages, context);
  std::vector<int32_t> starts;
  for (int64_t i = 0; i <= tokens; ++i) starts.push_back(static_cast<int32_t>(i));
  std::vector<CallInput>& inputs = call.spec.inputs;
  inputs.resize(8);  // block_table follows
  inputs.push_back(Int32s({tokens, columns}, Shuffled(static_cast<int32_t>(pages), 1)));
  inputs.push_back(SameInts(tokens, context));
  inputs.push_back(Int32s({tokens + 1}, starts));
  return call;
}

void AddAttentionRows(std::vector<Row>& rows) {
  const auto listed = [&](const std::string& name, Target target, const LatentSizes& sizes,
                          const LatentList& list, const std::optional<LatentList>& more = {}) {
    rows.push_back({name, target, [=](const Gpu& gpu) {
                      return Listed(sizes, list, more).Time(gpu, target.bound);
                    }});
  };
  for (const int64_t tokens : {4096, 1024}) {
    listed("SparseMla T" + std::to_string(tokens) + " K2048 H128 bf16",
           {.bound = Bound::kProduct, .share = 0.71}, {Bf16Latent(), tokens, 128},
           {kTopK, 32768, true});
  }
  listed("SparseMla B64 K2048 H128 fp8_ds_mla", {.bound = Bound::kProduct, .share = 0.46},
         {DsMlaLatent(), 64, 128}, {kTopK, 8192});
  const LatentList window = {128, 128}, compressed = {512, 8192};
  listed("SparseMla B64 K128+512 H64 fp8_ue8m0", {.bound = Bound::kProduct, .share = 0.44},
         {Ue8m0Latent(), 64, 64}, window, compressed);
  listed("SparseMla B1 K128+512 H64 fp8_ue8m0", {.bound = Bound::kCopy, .us = 10},
         {Ue8m0Latent(), 1, 64}, window, compressed);
  const auto all = [&](int64_t heads, Target target) {
    rows.push_back(
        {"MLA B64 8192 H" + std::to_string(heads) + " bf16", target, [=](const Gpu& gpu) {
           return AllRows({Bf16Latent(), 64, heads}, 8192).Time(gpu, target.bound);
         }});
  };
  all(128, {.bound = Bound::kProduct, .share = 0.71});
  for (const int64_t heads : {16, 8}) {
    const Target target = {.bound = Bound::kCopy, .share = 0.80};
    all(heads, target);
    listed("SparseMla B64 K2048 H" + std::to_string(heads) + " bf16", target,
           {Bf16Latent(), 64, heads}, {kTopK, 8192});
  }
}

// --- IndexerTopK, PagedIndexerTopK ---

Measured ChooseKeys(const Gpu& gpu, int64_t rows, int64_t keys) {
  const CallSpec spec = {.op = "IndexerTopK",
                         .attributes = {{"topk", kTopK}},
                         .inputs = {Random(DataType::kFloat, {rows, keys}, Fill::kFloat),
                                    SameInts(rows, 0), SameInts(rows, keys)}};
  const auto bytes = static_cast<double>(rows * (keys + kTopK) * 4);
  return {TimeCalls(gpu, spec, static_cast<size_t>(bytes)), bytes};
}

// Scores of one token of each sequence with all of its keys, and the choice.
Measured ChoosePagedKeys(const Gpu& gpu, int64_t sequences, int64_t context) {
  constexpr int64_t kIndexHeads = 64, kIndexSize = 128, kKeyBytes = kIndexSize + 4;
  const int64_t columns = context / kPage, pages = sequences * columns;
  const CallSpec spec = {
      .op = "PagedIndexerTopK",
      .attributes = {{"topk", kTopK}},
      .inputs = {
          Random(DataType::kFloat8E4M3FN, {sequences, 1, kIndexHeads, kIndexSize}, Fill::kFloat8),
          // As scales these bytes are numbers below 2 too.
          Random(DataType::kUint8, {pages, kPage, kKeyBytes}, Fill::kFloat8),
          Random(DataType::kFloat, {sequences, kIndexHeads}, Fill::kFloat),
          SameInts(sequences, context),
          Int32s({sequences, columns}, Shuffled(static_cast<int32_t>(pages), 1)),
          {},  // max_model_len
          {},  // query_start_loc
          SameInts(sequences, 0),
          SameInts(sequences, context)}};
  const auto bytes = static_cast<double>(sequences * (context * kKeyBytes + kTopK * 4));
  return {TimeCalls(gpu, spec, static_cast<size_t>(bytes)), bytes};
}

void AddChoiceRows(std::vector<Row>& rows) {
  const auto add = [&](int64_t m, int64_t n, double us) {
    const std::string name =
        "IndexerTopK M" + std::to_string(m) + " N" + std::to_string(n) + " K2048";
    rows.push_back({name, {.bound = Bound::kCopy, .us = us}, [=](const Gpu& gpu) {
                      return ChooseKeys(gpu, m, n);
                    }});
  };
  add(64, 32768, 40);
  add(1, 32768, 30);
  add(64, 131072, 60);
  // As long as scores and choice by themselves.
  rows.push_back({"PagedIndexerTopK B64 32768 K2048",
                  {.bound = Bound::kCopy, .us = 130},
                  [](const Gpu& gpu) { return ChoosePagedKeys(gpu, 64, 32768); }});
}

}  // namespace

void AddSparseRows(std::vector<Row>& rows) {
  AddAttentionRows(rows);
  AddChoiceRows(rows);
}

}  // namespace pagefuse::cuda_bench
