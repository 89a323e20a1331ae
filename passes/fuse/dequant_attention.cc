// fuse-dequant-attention: attention over a paged cache written out in standard ops, with its
// dequantisation, becomes PagedAttention; so does the quantising write into the cache, which
// becomes PagedCacheInsert. The patterns are the ops' own decompositions.
//
// Gather and ScatterND are content with more blocks, sequences and rows than they are asked for;
// the ops want as many of one kind as of the other, so that has to be proved.
#include <utility>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/analysis/indexing/broadcast_proof.h"
#include "pagefuse/passes/edit/match_failure.h"
#include "pagefuse/passes/fuse/fuse.h"
#include "pagefuse/passes/fuse/indexed/paged_attention_ports.h"
#include "pagefuse/passes/rewrite/rule.h"

namespace pagefuse {
namespace {

// Keys, values and their scales, [NB, BS, Hk, ...].
Condition HaveOneLayout() {
  std::vector<SameLength> pairs;
  for (const char* cache : {"value_cache", "k_scale_cache", "v_scale_cache"}) {
    for (int axis = 0; axis < 3; ++axis) pairs.push_back({cache, axis, "key_cache", axis});
  }
  return SameLengths(std::move(pairs));
}

Condition HaveOneBatch() {
  return {"query_start_loc is [B + 1], seq_lens [B]", [](const Match& match) -> absl::Status {
            const AxisOf starts = {match.value("query_start_loc"), 0};
            const AxisOf lengths = {match.value("seq_lens"), 0};
            PF_RETURN_IF_ERROR(CheckFirstTokens(*starts.value));
            if (ProvablyEqual(starts.dim(), lengths.dim() + Dim(1))) return absl::OkStatus();
            return MatchFailure(*starts.value, ": expected one more than the ",
                                lengths.dim().ToString(), " of ", *lengths.value, ", got ",
                                starts.dim().ToString());
          }};
}

}  // namespace

std::unique_ptr<Pass> FuseDequantAttention() {
  std::vector<Rule> rules;
  rules.push_back(
      Rule("fuse-dequant-attention", "attention over a paged, optionally quantised cache")
          .MatchDecompositionOf("pagefuse.PagedAttention")
          .Needs("Exp")
          .Where(HaveOneLayout())
          .Where(
              SameLengths({{"value_cache", 3, "key_cache", 3}, {"block_table", 0, "seq_lens", 0}}))
          .Where(HaveOneBatch()));
  return MakeRulePass("fuse-dequant-attention", "Fuses dequantisation and paged attention.",
                      std::move(rules));
}

std::unique_ptr<Pass> FuseCacheInsert() {
  std::vector<Rule> rules;
  rules.push_back(
      Rule("fuse-cache-insert", "quantisation and the write into a paged cache")
          .MatchDecompositionOf("pagefuse.PagedCacheInsert")
          .Needs("ScatterND")
          .Where(HaveOneLayout())
          .Where(SameLengths({{"slot_mapping", 0, "key", 0}, {"slot_mapping", 0, "value", 0}})));
  return MakeRulePass("fuse-cache-insert", "Fuses quantisation and cache insert.",
                      std::move(rules));
}

}  // namespace pagefuse
