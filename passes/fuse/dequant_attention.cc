// fuse-dequant-attention: attention over a paged cache written out in standard ops, with its
// dequantisation, becomes PagedAttention; so does the quantising write into the cache, which
// becomes PagedCacheInsert. The patterns are the ops' own decompositions.
#include "pagefuse/passes/fuse/fuse.h"
#include "pagefuse/passes/rule.h"

namespace pagefuse {

std::unique_ptr<Pass> FuseDequantAttention() {
  std::vector<Rule> rules;
  rules.push_back(
      Rule("fuse-dequant-attention", "attention over a paged, optionally quantised cache")
          .MatchDecompositionOf("pagefuse.PagedAttention"));
  return MakeRulePass("fuse-dequant-attention", "Fuses dequantisation and paged attention.",
                      std::move(rules));
}

std::unique_ptr<Pass> FuseCacheInsert() {
  std::vector<Rule> rules;
  rules.push_back(Rule("fuse-cache-insert", "quantisation and the write into a paged cache")
                      .MatchDecompositionOf("pagefuse.PagedCacheInsert"));
  return MakeRulePass("fuse-cache-insert", "Fuses quantisation and cache insert.",
                      std::move(rules));
}

}  // namespace pagefuse
