// SPDX-License-Identifier: Apache-2.0
// Constant matrices in a format of weights, and the ops that read them so.
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/ops/kernels/formats/weight_format.h"
#include "pagefuse/passes/edit/attributes.h"
#include "pagefuse/passes/quantise/weights/weight_matches.h"

namespace pagefuse {

// Stores each matrix of a graph once, whoever reads it: a table and a tied head share theirs.
class StoredWeights {
 public:
  StoredWeights(Graph& graph, const WeightFormat& format) : graph_(graph), format_(format) {}

  // Puts the op that reads the format in place of the use's node and returns what gives its output,
  // which has the node's type, shape and metadata. InvalidArgument naming the weight if it has NaN
  // or infinity where it would become codes; ResourceExhausted if there is no memory. Pages of a
  // mapped file are given back.
  absl::StatusOr<Node*> Put(const WeightMatch& use);

 private:
  // What holds a matrix: its rows, or its codes and their scales.
  using Parts = std::vector<Value*>;
  struct Stored {
    Parts parts;
    Tensor matrix;  // keeps the memory, which it is known by
  };

  absl::StatusOr<Parts> Of(const WeightUse& weight);
  absl::StatusOr<Parts> Store(const WeightUse& weight);
  // What products over codes say of them.
  Attributes CodeAttributes() const;
  Node* PutTable(const WeightMatch& use, const Parts& parts);
  Node* PutProduct(const WeightMatch& use, const Parts& parts);
  // An op that takes numbers and formats alike.
  Node* PutFormat(const WeightMatch& use, const std::vector<Parts>& weights);

  Graph& graph_;
  const WeightFormat& format_;
  // By memory, what it is seen as, and which way it is summed.
  std::map<std::tuple<const void*, std::vector<int64_t>, bool>, Stored> stored_;
};

}  // namespace pagefuse
