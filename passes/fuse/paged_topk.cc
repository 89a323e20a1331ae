// fuse-paged-topk: keys that are chosen by their index scores over a paged cache are chosen as they
// are scored, so that the scores of a whole context are never there at once.
//
//   q, kv_cache, w, .. -- PagedMqaLogits -- IndexerTopK -- indices
//     =>  q, kv_cache, w, .. -- PagedIndexerTopK -- indices
#include "pagefuse/passes/fuse/fuse.h"
#include "pagefuse/passes/rule.h"

namespace pagefuse {

std::unique_ptr<Pass> FusePagedTopK() {
  // Columns behind the context that clean_logits leaves open are -inf then.
  return MakeRulePass("fuse-paged-topk",
                      "Fuses index scores over a paged cache with the choice of the best.",
                      {Rule("fuse-paged-topk", "the best index scores over a paged cache")
                           .MatchText(R"(
    (q, kv_cache, weights, context_lens, block_tables, max_model_len?, query_start_loc?, ks, ke)
        => (indices) {
  logits = pagefuse.PagedMqaLogits <format: string = @format, ratio: int = @ratio,
                                    clean_logits: int = @clean> (
      q, kv_cache, weights, context_lens, block_tables, max_model_len, query_start_loc)
  indices = pagefuse.IndexerTopK <topk: int = @topk> (logits, ks, ke)
})")
                           .Needs("PagedMqaLogits")
                           .Metadata({"context_lens", "block_tables", "max_model_len",
                                      "query_start_loc", "ks", "ke"})
                           .ReplaceWith(R"(
    (q, kv_cache, weights, context_lens, block_tables, max_model_len?, query_start_loc?, ks, ke)
        => (indices) {
  indices = pagefuse.PagedIndexerTopK <format: string = @format, ratio: int = @ratio,
                                       topk: int = @topk> (
      q, kv_cache, weights, context_lens, block_tables, max_model_len, query_start_loc, ks, ke)
})")});
}

}  // namespace pagefuse
