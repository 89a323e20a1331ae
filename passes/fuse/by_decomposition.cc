// fuse-decompositions: ops of sparse attention, compressed caches and their indexer, wherever a
// graph writes out what they do. The patterns are the ops' own decompositions, in words as the
// graph is.
#include <string>

#include "pagefuse/ir/str_cat.h"
#include "pagefuse/passes/fuse/fuse.h"
#include "pagefuse/passes/rule.h"

namespace pagefuse {

std::unique_ptr<Pass> FuseDecompositions() {
  // Larger ones first: some hold others.
  static constexpr const char* kOps[] = {"CompressCacheInsert", "QNormRopeKvInsert",
                                         "KCacheQuantInsert",   "IndexerQRopeQuant",
                                         "InvRopeQuant",        "IndexerKQuantInsert",
                                         "MlaCacheInsert",      "CompressorStateInsert",
                                         "PagedMqaLogits",      "MqaLogits",
                                         "IndexerTopK",         "SparseMlaAttention",
                                         "TurboQuantAttention", "TopKSlots"};
  std::vector<Rule> rules;
  for (const char* op : kOps) {
    rules.push_back(Rule(StrCat("fuse-", op), StrCat(op, " written out"))
                        .MatchDecompositionOf(StrCat("pagefuse.", op)));
  }
  return MakeRulePass("fuse-decompositions", "Fuses ops that a graph writes out.",
                      std::move(rules));
}

}  // namespace pagefuse
