// Constant matrices as bfloat16 in the blocks that products read: stored once, whoever reads them.
#pragma once

#include <map>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ir/graph.h"
#include "pagefuse/passes/quantise/weight_sites.h"

namespace pagefuse {

// The packed matrices of one graph.
class PackedWeights {
 public:
  explicit PackedWeights(Graph& graph) : graph_(graph) {}

  // The initialiser of a site's matrices; a table and the product with it share theirs. Pages of a
  // mapped file are given back. ResourceExhausted if there is no memory.
  absl::StatusOr<Value*> Of(const WeightSite& site);

 private:
  struct Stored {
    Value* value = nullptr;
    std::vector<Tensor> matrices;  // keep the memory, which they are known by
  };

  Graph& graph_;
  // By memory of each matrix, and which way they are summed.
  std::map<std::pair<std::vector<const void*>, bool>, Stored> stored_;
};

// Puts the op over packed matrices in place of the site's node; returns it.
Node* PutPacked(Graph& graph, const WeightSite& site, Value* packed);

}  // namespace pagefuse
