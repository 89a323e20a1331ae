// SPDX-License-Identifier: Apache-2.0
// A compiled pattern: a small graph in canonical form, with what the matcher must know of each of
// its values.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse {

enum class PatternKind {
  kInput,      // binds any value
  kConstant,   // a constant of that value
  kAttribute,  // `Constant <value_float = @name>`: a constant whose value is bound to the name
  kDerived,  // computed from shapes, constants and attributes alone: compared by contents, else by
             // structure
  kNode,     // an output of a node
};

// What the matcher knows of a pattern value.
struct PatternValue {
  const Value* value = nullptr;
  PatternKind kind = PatternKind::kNode;
  bool metadata =
      false;  // derives from metadata inputs, shapes and constants alone: may have readers outside
  bool optional = false;       // an input that may be missing in the graph: `(x, mask?) => ...`
  std::string attribute = {};  // kAttribute: the name
};

struct Pattern {
  std::string name;
  Model model;
  std::vector<PatternValue> values;
  absl::flat_hash_map<const Value*, int> ids;
  std::vector<const Node*>
      nodes;  // that must be matched (not kDerived or kAttribute), in topological order
  std::vector<int> outputs;
  // Op types of nodes that no match can do without, sorted.
  std::vector<std::string> needed_types;

  int id(const Value* value) const { return ids.at(value); }
  const PatternValue& operator[](int id) const { return values[id]; }
};

struct PatternSource {
  std::string name;
  std::string text;  // `(x, w?) => (y) { ... }`, a name and header before it allowed
  std::vector<std::string> metadata_inputs;
};

// A function's text made whole: the name `pattern` is put in where there is none, `?` marks are
// taken off the inputs and returned in `optional`.
std::string NormaliseFunctionText(std::string_view text, std::vector<std::string>* optional);

// Parses the text and puts the graph through the canonicalization that models get. InvalidArgument
// if it does not parse or has subgraphs.
absl::StatusOr<std::shared_ptr<const Pattern>> CompilePattern(const PatternSource& source);

// Reshape, Squeeze, Unsqueeze and Flatten: the same elements under another shape.
bool IsViewNode(const Node& node);
// A view, a Cast or an Expand: what a graph may have or leave out where the pattern has it.
bool IsElasticNode(const Node& node);
// Views on end that are looked through at most: a graph of nothing but views would take the square
// of its nodes otherwise.
inline constexpr int kMaxViews = 64;

}  // namespace pagefuse
