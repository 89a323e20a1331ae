// Nodes whose constant matrices can be stored as codes, and how they are rewritten.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/passes/edit/attributes.h"
#include "pagefuse/passes/quantise/weights/weight_codes.h"

namespace pagefuse {

// A constant matrix that a node reads.
struct WeightUse {
  const Value* value = nullptr;
  WeightMatrix matrix = {};
};

// A product with constant matrices, or a look-up in one.
struct WeightMatch {
  Node* node = nullptr;
  std::vector<WeightUse> weights = {};
  Value* bias = nullptr;  // of a product
  bool is_table = false;
  bool is_grouped = false;  // rows that each have a matrix of a stack
  // Gate and up: both are read in one pass.
  bool is_gated() const { return weights.size() == 2; }
};

// The use of a node for numbers of `bits` (WeightChoice); OK and without weights for one that is
// none (another op, a product of two computed values); FailedPrecondition with what was expected and
// found for one whose weights stay as they are.
absl::StatusOr<WeightMatch> WeightMatchOf(Node* node, int bits);

// An op over stored weights.
struct StoredOp {
  std::string_view op;
  std::string_view domain = "pagefuse";
};
// Puts it in place of the use's node, with what that says of its activation or its rows, then with
// `attributes`; returns it. It has the name, the metadata, and the output's type and shape.
Node* PutOver(Graph& graph, const WeightMatch& use, const StoredOp& op, std::vector<Value*> inputs,
              const Attributes& attributes);

// Codes and scales in a graph.
struct CodeValues {
  Value* codes = nullptr;
  Value* scales = nullptr;
};

// Puts the op over codes, one pair a weight, in place of the use's node; returns it. It has the
// outputs' types and shapes.
Node* PutCodes(Graph& graph, const WeightMatch& use, const std::vector<CodeValues>& codes,
               int bits);

}  // namespace pagefuse
