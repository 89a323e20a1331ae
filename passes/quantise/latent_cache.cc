#include "pagefuse/passes/quantise/latent_cache.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/kernels/formats/grouped_row.h"
#include "pagefuse/passes/graph_builder.h"
#include "pagefuse/passes/graph_edit.h"

namespace pagefuse {
namespace {

// Of MlaCacheInsert.
constexpr int kRows = 0, kRotated = 1, kSlots = 2, kCache = 3;
// Of what reads the cache.
constexpr int kReadCache = 1;
constexpr int64_t kIndexKey = 128;

std::string SizeText(const Value* rows) {
  return rows && rows->shape() ? rows->shape()->back(0).ToString() : "none";
}

bool HasSize(const Value* rows, int64_t size) {
  return rows && rows->shape() && rows->shape()->back(0).constant() == size;
}

bool IsCacheInput(const Value* cache) {
  return cache->is_input() && cache->shape() && cache->shape()->rank() == 3;
}

// Another type only the caller of the graph can give a cache, and only `reader` reads it.
absl::Status CheckCacheOf(const Node& insert, std::string_view reader) {
  if (!IsCacheInput(insert.input(kCache))) {
    return absl::FailedPreconditionError(
        StrCat("quantise-kv-cache: ", insert.Description(), ": input ", kCache,
               ": expected a graph input of shape [num_blocks, block_size, row], got \"",
               insert.input(kCache)->name(), "\""));
  }
  for (const Use& use : insert.output(0)->uses()) {
    if (use.node->Is(reader, "pagefuse") && use.index == kReadCache) continue;
    return absl::FailedPreconditionError(StrCat("quantise-kv-cache: ", use.node->Description(),
                                                " reads \"", insert.output(0)->name(),
                                                "\" and takes no quantised cache"));
  }
  return absl::OkStatus();
}

Value* Rounded(GraphBuilder& builder, Value* rows) {
  if (!rows || rows->dtype() == DataType::kBfloat16) return rows;
  Value* rounded = builder.Add("Cast", {rows}, "to", static_cast<int64_t>(DataType::kBfloat16));
  rounded->set_dtype(DataType::kBfloat16);
  return rounded;
}

// The cache, and what comes back of it, has rows of `size` elements of another type.
void Retype(Value* cache, DataType type, std::optional<int64_t> size) {
  cache->set_dtype(type);
  if (!size || !cache->shape()) return;
  Shape shape = *cache->shape();
  shape.dims().back() = Dim(*size);
  cache->set_shape(std::move(shape));
}

void RetypeCache(Node& insert, DataType type, std::optional<int64_t> size = std::nullopt) {
  Retype(insert.input(kCache), type, size);
  insert.output(0)->set_dtype(type);
  if (insert.input(kCache)->shape()) insert.output(0)->set_shape(*insert.input(kCache)->shape());
}

}  // namespace

bool ChangesSharedRows(const CacheSite& site) {
  const Node& insert = *site.insert;
  if (!insert.Is("MlaCacheInsert", "pagefuse") || site.choice.changes_nothing()) return false;
  return insert.StringAttribute("format", "bf16").value_or("") == "bf16" &&
         insert.input(kCache)->dtype() != site.choice.stored;
}

absl::Status CheckLatentRows(const CacheSite& site) {
  const Node& insert = *site.insert;
  if (!site.choice.takes_latent_rows()) {
    return SiteError(site, insert, "expected keys and values of heads, got latent rows");
  }
  PF_RETURN_IF_ERROR(CheckCacheOf(insert, "SparseMlaAttention"));
  if (!site.choice.grouped()) return absl::OkStatus();
  const GroupedRowFormat format = Fp8DsMlaRow();
  const Value *rows = insert.input(kRows), *rotated = insert.input(kRotated);
  if (HasSize(rows, format.coded) && HasSize(rotated, format.plain)) return absl::OkStatus();
  return SiteError(site, insert,
                   StrCat("expected latent rows of ", format.coded, " and rotated parts of ",
                          format.plain, ", got ", SizeText(rows), " and ", SizeText(rotated)));
}

void StoreLatentRows(Graph& graph, const CacheSite& site) {
  Node* insert = site.insert;
  GraphBuilder builder(graph, insert, insert->output(0)->name());
  for (int i : {kRows, kRotated}) insert->SetInput(i, Rounded(builder, insert->input(i)));
  if (!site.choice.grouped()) return RetypeCache(*insert, DataType::kBfloat16);
  RetypeCache(*insert, DataType::kUint8, Fp8DsMlaRow().TokenBytes());
  const Attribute format = MakeAttribute(std::string("fp8_ds_mla"));
  insert->SetAttribute("format", format);
  for (const Use& use : insert->output(0)->uses()) use.node->SetAttribute("format", format);
}

bool WritesIndexKeys(const Node& insert) {
  if (!insert.Is("MlaCacheInsert", "pagefuse") && !insert.Is("IndexerKQuantInsert", "pagefuse")) {
    return false;
  }
  const std::vector<Use>& uses = insert.output(0)->uses();
  return std::any_of(uses.begin(), uses.end(),
                     [](const Use& use) { return use.node->Is("PagedMqaLogits", "pagefuse"); });
}

const Node* RowsChosenBy(const Node& index_insert) {
  constexpr int kSteps = 4;  // scores, places, slots, attention
  const Node* node = &index_insert;
  for (int i = 0; i < kSteps; ++i) {
    const auto uses = node->output(0)->uses();
    const auto next = std::find_if(uses.begin(), uses.end(),
                                   [](const Use& use) { return use.node->domain() == "pagefuse"; });
    if (next == uses.end()) return nullptr;
    node = next->node;
    if (node->Is("SparseMlaAttention", "pagefuse")) return node->input(kReadCache)->producer();
  }
  return nullptr;
}

absl::Status CheckIndexKeys(const CacheSite& site) {
  const Node& insert = *site.insert;
  PF_RETURN_IF_ERROR(CheckCacheOf(insert, "PagedMqaLogits"));
  if (!site.choice.grouped() || HasSize(insert.input(kRows), kIndexKey)) return absl::OkStatus();
  return SiteError(
      site, insert,
      StrCat("expected index keys of ", kIndexKey, ", got ", SizeText(insert.input(kRows))));
}

void StoreIndexKeys(Graph& graph, const CacheSite& site) {
  Node* insert = site.insert;
  GraphBuilder builder(graph, insert, insert->output(0)->name());
  Value* keys = Rounded(builder, insert->input(kRows));
  if (!site.choice.grouped()) {
    insert->SetInput(kRows, keys);
    return RetypeCache(*insert, DataType::kBfloat16);
  }
  const bool packed = site.choice.grouped_bits == 4;
  const GroupedRowFormat rows =
      packed ? IndexerMxfp4Row(kIndexKey) : IndexerFp8Row(kIndexKey, kIndexKey);
  const Attribute format = MakeAttribute(std::string(packed ? "mxfp4" : "fp8"));
  RetypeCache(*insert, DataType::kUint8, rows.TokenBytes());
  Node* quantised = builder.AddNode("pagefuse", "IndexerKQuantInsert",
                                    {keys, insert->input(kSlots), insert->input(kCache)}, 1);
  Value* out = quantised->output(0);
  out->set_dtype(DataType::kUint8);
  out->set_shape(insert->output(0)->shape());
  if (packed) quantised->SetAttribute("format", format);
  for (const Use& use : insert->output(0)->uses()) use.node->SetAttribute("format", format);
  graph.ReplaceAllUses(insert->output(0), out);
  graph.EraseNode(insert);
}

}  // namespace pagefuse
