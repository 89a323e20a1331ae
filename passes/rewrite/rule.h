// SPDX-License-Identifier: Apache-2.0
// A fusion rule: declared patterns, named conditions and a replacement, without a loop or a graph
// walk.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/passes/pass.h"

namespace pagefuse {

// What a pattern bound in the graph.
struct Match {
  std::string pattern;  // name of the form that matched
  std::map<std::string, Value*, std::less<>>
      values;  // pattern inputs, outputs and inner values by name
  std::map<std::string, Attribute, std::less<>>
      attributes;                                // `@name` references, from attributes or constants
  std::map<std::string, Dim, std::less<>> dims;  // symbols of the pattern's declared shapes
  std::vector<Node*> nodes;                      // the matched nodes, in topological order
  Graph* graph = nullptr;
  const SymbolicContents* contents = nullptr;

  Value* value(
      std::string_view name) const;  // null if the pattern has no such value (optional port)
  const Tensor* constant(std::string_view name) const;  // null if it is no constant
};

// A named condition. Run says OK, or why not: the text is what --explain prints.
struct Condition {
  std::string name;
  std::function<absl::Status(const Match&)> run;
};
Condition SameShape(std::string a, std::string b);

// Computes attributes of the replacement from the match ("epsilon" from a constant); added to
// Match::attributes.
using Derivation = std::function<absl::Status(Match&)>;

class Rule {
 public:
  explicit Rule(std::string_view name, std::string_view description = "");

  // A pattern in text: `(x, w, bias?) => (y) { ... }`, several outputs allowed, `?` marks inputs
  // that may be missing. Matching knows commutative ops, treats scalar constants by value, matches
  // Reshape, Expand, Squeeze and Unsqueeze by the shape of their result, and lets inner values be
  // read from outside only if they derive from metadata ports or constants. `@name` binds an
  // attribute or a constant's value. Declared types `(float[T, H] x)` constrain dtypes and bind
  // dims.
  Rule& MatchText(std::string_view text, std::string_view pattern_name = "");
  // The op's decomposition as a pattern, where it is a text (OpDef::forms).
  Rule& MatchDecompositionOf(std::string_view op);
  // Conditions and derivations run in the order of their declaration; the first that fails is the
  // reason of the miss.
  Rule& Where(Condition condition);
  Rule& Where(std::string name, std::function<absl::Status(const Match&)> run);
  // Conditions as text: "rank(weight) == 1, dim(weight, 0) == dim(x, -1)"
  // (rewrite/condition_text.h). What does not parse is an error of Compile.
  Rule& Where(std::string_view conditions);
  Rule& Derive(Derivation derivation);
  // Names among the pattern's inputs whose dependants may be read from outside the match, beside
  // the op's own metadata ports.
  Rule& Metadata(std::vector<std::string> inputs);
  // No pattern of the rule can do without a node of that op type: where a graph has no such node,
  // none of them is so much as parsed.
  Rule& Needs(std::string_view op_type);
  // Text with the same inputs and outputs; `@name` is replaced by Match::attributes. Inputs that
  // did not match are omitted. A rule with MatchDecompositionOf alone needs none: it puts in the
  // op, with the ports and attributes that its text has.
  Rule& ReplaceWith(std::string_view text);
  // Builds the replacement where text cannot say it: creates nodes before `anchor` and returns one
  // value an output.
  using Builder =
      std::function<absl::StatusOr<std::vector<Value*>>(const Match&, Graph&, Node* anchor)>;
  Rule& ReplaceWith(Builder builder);

  const std::string& name() const;
  const std::string& description() const;
  // Parses patterns and replacement. InvalidArgument if one does not parse, they do not fit each
  // other, or a pattern does without a type that the rule needs.
  absl::Status Compile() const;

  struct Impl;
  const Impl& impl() const { return *impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

// A pass that applies rules everywhere (subgraphs and functions too) until none fires. A pass and
// its rule may share the name. The rules run in order at every place; put the larger patterns
// first.
std::unique_ptr<Pass> MakeRulePass(std::string_view name, std::string_view description,
                                   std::vector<Rule> rules);

}  // namespace pagefuse
