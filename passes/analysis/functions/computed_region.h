// SPDX-License-Identifier: Apache-2.0
// Sub-graphs read as functions of tensors: what computes some values from others, whatever stands
// between, and what it gives on tensors of one's choice.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"

#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse {

// Numbers for the symbols of dims.
using DimSizes = std::map<std::string, int64_t>;

// The dims as numbers; nullopt if a symbol has none.
std::optional<std::vector<int64_t>> NumbersOf(const std::vector<Dim>& dims, const DimSizes& sizes);

struct RegionScope {
  const OpsetImports* opsets = nullptr;
  const SymbolicContents* contents = nullptr;
  // Integers that are known from these symbols are not computed in the region.
  DimSizes sizes;
};

// What a value is computed by, up to a border.
struct Upstream {
  std::vector<Node*> nodes;    // in topological order
  std::vector<Value*> leaves;  // inputs of the graph and results of nodes that no region holds
  std::vector<Value*> constants;
  std::vector<Value*> reached;  // values of the border that are read
};

// All that computes `outputs`, stopping at `border`, at constants and known sizes, and at nodes
// that mix more than the elements of a token: products with data, attention, subgraphs.
Upstream UpstreamOf(const std::vector<Value*>& outputs,
                    const absl::flat_hash_set<const Value*>& border, const RegionScope& scope);

// Computes `outputs` from `ports` alone.
struct ComputedRegion {
  std::vector<Value*> ports;
  std::vector<Value*> outputs;
  std::vector<Node*> nodes;  // in topological order
};

// FailedPrecondition naming a value that `outputs` need besides the ports, or the port that none
// of them reads.
absl::StatusOr<ComputedRegion> RegionBetween(std::vector<Value*> ports, std::vector<Value*> outputs,
                                             const RegionScope& scope);

// FailedPrecondition naming an inner value that somebody else reads. Values that derive from
// `metadata` ports, sizes and constants alone may have other readers.
absl::Status CheckReaders(const ComputedRegion& region,
                          const absl::flat_hash_set<const Value*>& metadata);

// The outputs on tensors for the ports. A value that is several ports has one tensor.
absl::StatusOr<std::vector<Tensor>> EvaluateRegion(const ComputedRegion& region,
                                                   const RegionScope& scope,
                                                   const std::vector<Tensor>& ports);

}  // namespace pagefuse
