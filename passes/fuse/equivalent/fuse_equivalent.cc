// SPDX-License-Identifier: Apache-2.0
// fuse-equivalent: fuses ops of sparse attention, compressed caches and their indexer wherever a
// subgraph gives the same results on test vectors, whatever nodes it consists of (fusion_search.h).
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/fuse/equivalent/fusions.h"
#include "pagefuse/passes/fuse/fuse.h"

namespace pagefuse {
namespace {

struct NamedFusion {
  const char* op;
  const char* description;
  Fusion fuse;
};

// Larger ones first: some hold others.
constexpr NamedFusion kFusions[] = {
    {"CompressCacheInsert",
     "windows that are pooled, normed, rotated, quantised and inserted into the cache",
     FuseCompressCacheInsert},
    {"QNormRopeKvInsert",
     "queries that are normed and rotated, and keys that are rotated and inserted into the "
     "cache",
     FuseQNormRopeKvInsert},
    {"KCacheQuantInsert",
     "keys that are quantised with power-of-two scales and inserted into the cache",
     FuseKCacheQuantInsert},
    {"IndexerKQuantInsert", "indexer keys that are quantised and inserted into the cache",
     FuseIndexerKQuantInsert},
    {"MlaCacheInsert",
     "latent and rotated parts of rows that are inserted into the cache side by side",
     FuseMlaCacheInsert},
    {"CompressorStateInsert",
     "rows and scores with their position bias that are inserted into a compressor's state",
     FuseCompressorStateInsert},
    {"PagedCacheInsert", "keys and values that are quantised and inserted into paged caches",
     FusePagedCacheInsert},
    {"IndexerQRopeQuant",
     "indexer queries that are rotated and quantised, and their scaled head weights",
     FuseIndexerQRopeQuant},
    {"InvRopeQuant", "attention outputs that are rotated back and quantised", FuseInvRopeQuant},
    {"TurboQuantInsert", "keys and values that are encoded into TurboQuant slots",
     FuseTurboQuantInsert},
    {"TurboQuantDequant", "whole sequences that are decoded from TurboQuant slots",
     FuseTurboQuantDequant},
    {"KCacheDequantGather", "the last rows of each request, decoded into a workspace",
     FuseKCacheDequantGather},
    {"MlaGatherUpconvert", "latent rows of whole requests, decoded", FuseMlaGatherUpconvert},
    {"IndexerKGather", "indexer keys of whole requests, packed one after the other",
     FuseIndexerKGather},
    {"CombineTopKWindow", "a list of compressed rows and window rows for each token",
     FuseCombineTopKWindow},
    {"ReqIndexToSlot", "slots or workspace rows that are looked up for positions within requests",
     FuseReqIndexToSlot},
    {"MergeAttnStates", "two results of attention that are merged by their log-sum-exps",
     FuseMergeAttnStates},
};

absl::StatusOr<bool> RunFusion(FusionSearch& search, const NamedFusion& fusion) {
  bool changed = false;
  bool again = true;
  while (again) {
    again = false;
    for (Value* value : search.ComputedValues()) {
      PF_ASSIGN_OR_RETURN(again, fusion.fuse(search, value));
      // The graph is another one now.
      if (again) break;
    }
    changed = changed || again;
  }
  return changed;
}

absl::StatusOr<bool> Run(Model& model, PassContext& context) {
  bool changed = false;
  for (const GraphScope& scope : AllGraphs(model)) {
    if (scope.graph->parent()) continue;
    FusionSearch search(model, context, scope);
    for (const NamedFusion& fusion : kFusions) {
      PF_ASSIGN_OR_RETURN(const bool fused, RunFusion(search, fusion));
      changed = changed || fused;
    }
    search.ReportMisses();
  }
  return changed;
}

}  // namespace

std::unique_ptr<Pass> FuseEquivalent() {
  std::vector<RuleSummary> rules;
  for (const NamedFusion& fusion : kFusions) {
    rules.push_back({StrCat("fuse-", fusion.op), fusion.description});
  }
  return MakePass(
      "fuse-equivalent",
      "Fuses subgraphs into ops whose results are equal on test vectors, whatever nodes the "
      "subgraphs consist of.",
      Run, {}, std::move(rules));
}

}  // namespace pagefuse
