// fuse-equivalent: ops of sparse attention, compressed caches and their indexer, wherever a graph
// computes what they do, however it is spelled (fusion_search.h).
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
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
    {"CompressCacheInsert", "windows pooled, normed, rotated, quantised and put into the cache",
     FuseCompressCacheInsert},
    {"QNormRopeKvInsert", "queries normed and rotated, keys rotated and put into the cache",
     FuseQNormRopeKvInsert},
    {"KCacheQuantInsert", "keys quantised under power-of-two scales and put into the cache",
     FuseKCacheQuantInsert},
    {"IndexerKQuantInsert", "indexer keys quantised and put into the cache",
     FuseIndexerKQuantInsert},
    {"MlaCacheInsert", "latent and rotated part side by side in the cache", FuseMlaCacheInsert},
    {"CompressorStateInsert", "kv and placed scores put into the compressor's state",
     FuseCompressorStateInsert},
    {"PagedCacheInsert", "keys and values quantised and put into paged caches",
     FusePagedCacheInsert},
    {"IndexerQRopeQuant", "indexer queries rotated and quantised, weights scaled",
     FuseIndexerQRopeQuant},
    {"InvRopeQuant", "attention outputs rotated back and quantised", FuseInvRopeQuant},
    {"TurboQuantInsert", "keys and values put into TurboQuant slots", FuseTurboQuantInsert},
    {"TurboQuantDequant", "whole sequences unpacked from TurboQuant slots", FuseTurboQuantDequant},
    {"KCacheDequantGather", "last rows of requests decoded into a workspace",
     FuseKCacheDequantGather},
    {"MlaGatherUpconvert", "latent rows of whole requests decoded", FuseMlaGatherUpconvert},
    {"IndexerKGather", "indexer keys of whole requests, one behind the other", FuseIndexerKGather},
    {"CombineTopKWindow", "compressed rows and a window listed for each token",
     FuseCombineTopKWindow},
    {"ReqIndexToSlot", "positions within requests that become slots or workspace rows",
     FuseReqIndexToSlot},
    {"MergeAttnStates", "two results of attention joined by their log-sum-exps",
     FuseMergeAttnStates},
};

class FuseEquivalentPass : public Pass {
 public:
  std::string_view name() const override { return "fuse-equivalent"; }
  std::string_view description() const override {
    return "Fuses ops that a graph computes in any form, compared by numbers.";
  }
  std::vector<RuleSummary> rules() const override {
    std::vector<RuleSummary> rules;
    for (const NamedFusion& fusion : kFusions) {
      rules.push_back({StrCat("fuse-", fusion.op), fusion.description});
    }
    return rules;
  }
  absl::StatusOr<bool> Run(Model& model, PassContext& context) const override {
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

 private:
  static absl::StatusOr<bool> RunFusion(FusionSearch& search, const NamedFusion& fusion) {
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
};

}  // namespace

std::unique_ptr<Pass> FuseEquivalent() { return std::make_unique<FuseEquivalentPass>(); }

}  // namespace pagefuse
