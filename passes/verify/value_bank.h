// SPDX-License-Identifier: Apache-2.0
// Keeps every value of one run of a model by name. What a rewrite changed is evaluated on them and
// has to give what was there before, so that a rewrite costs the evaluation of what it made and
// nothing else.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/ops/evaluate/padding.h"
#include "pagefuse/passes/edit/graph_snapshot.h"

namespace pagefuse {

// Where a rewrite changed numbers.
struct BankDifference {
  std::string at;      // the value
  std::string detail;  // DifferenceText (compare_models.h)
};

class ValueBank {
 public:
  // Runs the model. The error of the node that cannot be run.
  static absl::StatusOr<ValueBank> Run(const Model& model,
                                       const std::map<std::string, Tensor>& feeds);

  // Evaluates what changed. Rows of padding are not compared. A value is compared where a node that the rewrite left alone reads it,
  // or the caller; where all its readers changed too, what they make of it is. Empty `at`: the same,
  // up to `tolerance` as CompareTensors has it; values keep the numbers of before, so that nothing
  // adds up. After a difference the bank goes on with the new numbers. The error of a node that
  // cannot be run.
  absl::StatusOr<BankDifference> Check(const Model& model, const GraphChange& change,
                                       double tolerance);

  // The number of a value; null if there is none of that name.
  const Tensor* Find(const std::string& name) const;

 private:
  struct Attempt;

  explicit ValueBank(Padding padding) : padding_(std::move(padding)) {}

  absl::StatusOr<std::vector<Tensor>> Evaluate(const Model& model, const Node& node,
                                               const Attempt& attempt) const;
  const Tensor* Lookup(const Value& value, const Attempt& attempt) const;
  void Note(const Node& node, const std::vector<Tensor>& outputs, const GraphChange& change,
            Attempt& attempt) const;
  void Replaced(const GraphChange& change, Attempt& attempt) const;
  void Sweep(const Model& model);

  Padding padding_;
  absl::flat_hash_map<std::string, Tensor> values_;
};

}  // namespace pagefuse
