// SPDX-License-Identifier: Apache-2.0
// quantise-kv-cache: the paged cache is stored in fewer bits an element: rows of codes with scales
// (row_cache.h), slots of codes of keys and values (slot_cache.h), or latent rows and index keys
// (latent_cache.h), layer by layer.
#include <algorithm>
#include <array>
#include <span>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/status_place.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/cache/cache_plan.h"
#include "pagefuse/ops/pagefuse/cache/paged_cache_insert.h"
#include "pagefuse/passes/edit/op_types.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/quantise/caches/cache_scales.h"
#include "pagefuse/passes/quantise/caches/cache_use.h"
#include "pagefuse/passes/quantise/caches/latent_cache.h"
#include "pagefuse/passes/quantise/caches/row_cache.h"
#include "pagefuse/passes/quantise/caches/slot_cache.h"
#include "pagefuse/passes/quantise/caches/window_cache.h"
#include "pagefuse/passes/quantise/quantise.h"

namespace pagefuse {
namespace {

constexpr char kName[] = "quantise-kv-cache";

// Values of options, the default first.
constexpr std::array<std::string_view, 2> kIndexQueries = {"fp8", "none"};
constexpr std::array<std::string_view, 2> kOffOn = {"off", "on"};

// Rows that all heads share.
bool WritesSharedRows(const Node& node) {
  return node.Is("MlaCacheInsert", "pagefuse") || WritesWindowRows(node);
}

bool WritesRows(const Node& node) {
  return IsAnyOf(node, {"PagedCacheInsert", "RopeCacheInsert", "TurboQuantInsert"}, "pagefuse") ||
         WritesSharedRows(node);
}

// Nodes that write what a layer keeps of its tokens, in order.
std::vector<Node*> LayersOf(const Graph& graph) {
  return NodesOf(graph,
                 [](const Node& node) { return WritesRows(node) && !WritesIndexKeys(node); });
}

bool HasWindow(const Node& insert) {
  // A layer that reads compressed rows besides sees all tokens.
  if (WritesWindowRows(insert)) return !ReadsCompressedRows(insert);
  return std::ranges::any_of(ReadersOf(insert), [](const Node* reader) {
    return IntOr(*reader, "sliding_window", 0) > 0;
  });
}

// Whether the cache is one of rows as keys or latent rows are, and the format another.
bool Changes(const CacheUse& use) {
  const Node& insert = *use.insert;
  if (WritesSharedRows(insert)) return ChangesSharedRows(use);
  if (!insert.Is("PagedCacheInsert", "pagefuse") || use.choice.changes_nothing()) return false;
  if (insert.StringAttribute("kv_quant_mode", "none").value_or("none") != "none") return false;
  // Where only the type tells, a cache of it is what was asked for.
  const Value* cache = insert.input(kPagedCacheInsertIn["key_cache"]);
  return !use.choice.is_plain() || cache == nullptr || cache->dtype() != use.choice.stored;
}

absl::StatusOr<std::vector<CacheUse>> FindSites(const Graph& graph, const CachePlan& plan) {
  const std::vector<Node*> layers = LayersOf(graph);
  const auto count = static_cast<int64_t>(layers.size());
  if (count > 0) PF_RETURN_IF_ERROR(AtPlace(kName, plan.CheckLayers(count)));
  std::vector<CacheUse> uses;
  for (int64_t i = 0; i < count; ++i) {
    CacheUse use{.insert = layers[i], .layer = {.index = i, .count = count}};
    if (use.insert->Is("PagedCacheInsert", "pagefuse") || WritesWindowRows(*use.insert)) {
      use.layer.has_window = HasWindow(*use.insert);
    }
    use.choice = plan.FormatOf(use.layer);
    if (Changes(use)) uses.push_back(use);
  }
  return uses;
}

// What the options say of index keys and the queries that score them.
struct IndexOptions {
  CacheChoice keys;
  bool codes_queries = false;
  bool hadamard = false;

  static absl::StatusOr<IndexOptions> Read(const PassContext& context) {
    const auto keys = FindIndexChoice(context.Option("indexer_cache", "none"));
    PF_RETURN_IF_ERROR(AtPlace("option indexer_cache", keys.status()));
    const IndexOptions options = {
        .keys = *keys,
        .codes_queries = context.Option("indexer_query", kIndexQueries[0]) == kIndexQueries[0],
        .hadamard = context.Option("indexer_hadamard", kOffOn[0]) == kOffOn[1]};
    if (!options.hadamard || options.keys.grouped()) return options;
    return absl::InvalidArgumentError(
        StrCat("option indexer_hadamard: expected an indexer_cache of codes, fp8 or mxfp4, got ",
               options.keys.name));
  }
};

// Inserts of index keys that are to have another format; each layer is that of the rows they choose.
absl::StatusOr<std::vector<CacheUse>> FindIndexSites(const Graph& graph,
                                                     const IndexOptions& options) {
  const CacheChoice& choice = options.keys;
  const std::vector<Node*> layers = LayersOf(graph);
  std::vector<CacheUse> uses;
  bool any = choice.changes_nothing() || layers.empty();
  for (const auto& node : graph.nodes()) {
    if (!WritesIndexKeys(*node)) continue;
    any = true;
    const auto layer = std::ranges::find(layers, RowsChosenBy(*node));
    const CacheUse use{
        .insert = node.get(),
        .layer = {.index = layer - layers.begin(), .count = static_cast<int64_t>(layers.size())},
        .choice = choice,
        .codes_queries = options.codes_queries,
        .hadamard = options.hadamard};
    if (ChangesSharedRows(use)) uses.push_back(use);
  }
  if (any) return uses;
  return AtPlace(kName,
                 absl::InvalidArgumentError(StrCat("option indexer_cache: ", choice.name,
                                                   " is asked for, but no layer has index keys")));
}

std::vector<std::string> NamesOf(std::span<const CacheChoice> choices) {
  std::vector<std::string> names;
  for (const CacheChoice& choice : choices) names.emplace_back(choice.name);
  return names;
}

std::vector<std::string> RowNames() {
  std::vector<std::string> names = NamesOf(CacheChoices());
  names.emplace_back(kCacheByWindow);
  return names;
}

void Store(Graph& graph, const CacheUse& use, const KvScales& scales, CacheNames& names) {
  if (WritesSharedRows(*use.insert)) return StoreLatentRows(graph, use);
  if (use.choice.turboquant) return StoreSlots(graph, use, names);
  StoreRows(graph, use, scales, names);
}

// The scales of the uses, all of which can be stored as they are to be.
absl::StatusOr<std::vector<KvScales>> Check(const std::vector<CacheUse>& uses,
                                            const ScaleOptions& options) {
  std::vector<KvScales> scales;
  for (const CacheUse& use : uses) {
    if (WritesSharedRows(*use.insert)) {
      PF_RETURN_IF_ERROR(CheckLatentRows(use));
      scales.emplace_back();
      continue;
    }
    if (use.choice.grouped()) {
      return CacheUseError(use, *use.insert, "expected latent rows, got keys and values of heads");
    }
    PF_RETURN_IF_ERROR(CheckCache(*use.insert));
    PF_RETURN_IF_ERROR(use.choice.turboquant ? CheckSlots(use) : CheckRows(use));
    PF_ASSIGN_OR_RETURN(scales.emplace_back(), options.Of(use));
  }
  return scales;
}

absl::StatusOr<bool> Quantise(Model& model, PassContext& context) {
  const auto plan = CachePlan::Parse(context.Option("kv_cache", "none"),
                                     context.Option("kv_cache_skip_layers", ""));
  if (!plan.ok()) return AtPlace(kName, plan.status());
  const auto index = IndexOptions::Read(context);
  if (!index.ok()) return AtPlace(kName, index.status());
  if (plan->changes_nothing() && index->keys.changes_nothing()) return false;
  PF_ASSIGN_OR_RETURN(const ScaleOptions options, ScaleOptions::Read(context));
  PF_ASSIGN_OR_RETURN(const std::vector<CacheUse> index_sites,
                      FindIndexSites(*model.graph, *index));
  PF_ASSIGN_OR_RETURN(const std::vector<CacheUse> uses, FindSites(*model.graph, *plan));
  for (const CacheUse& use : index_sites) PF_RETURN_IF_ERROR(CheckIndexKeys(use));
  PF_ASSIGN_OR_RETURN(const std::vector<KvScales> scales, Check(uses, options));
  CacheNames names;
  for (size_t i = 0; i < uses.size(); ++i) Store(*model.graph, uses[i], scales[i], names);
  for (const CacheUse& use : index_sites) StoreIndexKeys(*model.graph, use);
  PF_RETURN_IF_ERROR(RenameInGroups(model, names));
  const size_t count = uses.size() + index_sites.size();
  if (count > 0) context.counts[kName] += static_cast<int>(count);
  return count > 0;
}

}  // namespace

std::unique_ptr<Pass> QuantiseKvCache() {
  return MakePass(
      kName, "Stores cached keys and values in another format, with its scales.", Quantise,
      {{"kv_cache", "format of cached keys and values or latent rows, none by default", RowNames()},
       {"indexer_cache", "format of the index keys by which rows are chosen, none by default",
        NamesOf(IndexChoices())},
       {"indexer_query",
        "format of index queries beside index keys of fp8, fp8 by default, as published kernels "
        "have it",
        {kIndexQueries.begin(), kIndexQueries.end()}},
       {"indexer_hadamard",
        "rotation of index queries and keys by a Hadamard matrix before they become codes, off by "
        "default",
        {kOffOn.begin(), kOffOn.end()}},
       {"kv_cache_skip_layers",
        "layers that keep the type of keys and values, with commas; negative ones from the last, "
        "-1; none by default"},
       {"k_scale",
        "scale of keys in fp8_per_tensor, or one a layer with commas; by default that of the "
        "export, which may round so itself, else 1"},
       {"v_scale", "the same of values"}});
}

}  // namespace pagefuse
