// Constant matrices as bfloat16 in the blocks that products read: stored once, whoever reads them.
#pragma once

#include <map>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/passes/quantise/weights/weight_matches.h"

namespace pagefuse {

// The packed matrices of one graph.
class PackedWeights {
 public:
  explicit PackedWeights(Graph& graph) : graph_(graph) {}

  // The initialiser of a use's matrices; a table and the product with it share theirs. Pages of a
  // mapped file are given back. ResourceExhausted if there is no memory.
  absl::StatusOr<Value*> Of(const WeightMatch& use);

 private:
  struct Stored {
    Value* value = nullptr;
    std::vector<Tensor> matrices;  // keep the memory, which they are known by
  };

  Graph& graph_;
  // By memory of each matrix, and which way they are summed.
  std::map<std::pair<std::vector<const void*>, bool>, Stored> stored_;
};

// Puts the op over packed matrices in place of the use's node; returns it.
Node* PutPacked(Graph& graph, const WeightMatch& use, Value* packed);

}  // namespace pagefuse
