// SPDX-License-Identifier: Apache-2.0
// Declares what a pass is, what it may ask, and how it reports what it did and why it did not.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/passes/edit/graph_index.h"

namespace pagefuse {

// One place where a rule (or a pass) looked closely and did not fire.
struct MissedMatch {
  std::string rule;
  std::string at;         // value or node that the pattern was anchored at
  std::string condition;  // the first thing that failed: `"silu" is a graph output`
  int matched_nodes = 0;  // how far the match got; the explanation shows the nearest ones first
  int places = 1;         // that failed alike, this one among them (explain.h)
  // Of a rule's pattern: its form, its nodes, and with PassContext::side_by_side each of them as
  // text, beside the node of the graph that it is (empty where the match did not get).
  std::string variant = {};
  int pattern_nodes = 0;
  std::vector<std::pair<std::string, std::string>> side_by_side = {};
};

// A place that is of a family of fusions by what it is made of, and that no fused op took up.
struct UnfusedPlace {
  std::string family;                    // "attention without pages"
  std::string node;                      // Node::Description() of the first place
  int places = 1;                        // where it is left for the same reason
  std::string rule = {};                 // the nearest one; empty: nothing resembles it
  std::string reason = {};               // the first condition that failed
  MissedMatch nearest = {};              // of the rule, where it is one
  std::vector<std::string> values = {};  // what the places compute
};

// What passes share during a pipeline run.
struct PassContext {
  PassContext();
  PassContext(PassContext&&) noexcept;
  PassContext& operator=(PassContext&&) noexcept;
  ~PassContext();

  // Options by name: kv_cache=fp8_per_token_head, block_size=16.
  std::map<std::string, std::string> options;
  // Counts by rule or pass name: how often it rewrote something.
  std::map<std::string, int> counts;
  // Rules note their misses while explaining is on; passes that look at few places note them
  // always.
  bool explain = false;
  bool side_by_side = false;  // misses show pattern and graph
  std::vector<MissedMatch> misses;
  std::vector<UnfusedPlace> unfused;
  // Set where somebody asks and nothing is to happen: rules try the matches whose anchor these
  // nodes compute, and rewrite none.
  const absl::flat_hash_set<const Node*>* asked_at = nullptr;
  // Rules that do nothing.
  absl::flat_hash_set<std::string> left_out;
  // Symbolic contents of the model as it comes into a pass, inferred by whoever runs the pass
  // (RunPass, RunPipeline). A pass keeps them true while it rewrites (graph_edit.h does).
  SymbolicContents contents;
  // Indices of the model's graphs, for rules. As contents: dropped by whoever runs a pass that
  // changed something, and kept true by rules while they rewrite.
  GraphIndices indices;
  // Called after every single rewrite (tests verify there). May be null.
  std::function<absl::Status(const Model&, std::string_view rule)> after_rewrite;

  std::string Option(std::string_view name, std::string_view default_value) const;
  // Notes that a pass looked at a place and left it alone.
  void AddMissedMatch(std::string_view rule, std::string_view at, std::string_view condition,
                      int matched_nodes = 1);
  // Counts a rewrite and calls `after_rewrite`.
  absl::Status Rewrote(const Model& model, std::string_view rule);
};

// For the reference page: what a pass is made of.
struct RuleSummary {
  std::string name;
  std::string description;
};

// An option of a pass: what `PassContext::Option` reads.
struct PassOption {
  std::string name;
  std::string description;  // what it sets, and what it is where nobody sets it
  std::vector<std::string> choices =
      {};                // the values it takes; empty: numbers, checked by the pass
  bool is_text = false;  // any text in place of numbers
};

// Keeps no state between runs. Running a pass twice changes nothing the second time.
class Pass {
 public:
  virtual ~Pass() = default;
  virtual std::string_view name() const = 0;         // kebab-case
  virtual std::string_view description() const = 0;  // one sentence
  // The rules that the pass applies, where it is made of rules.
  virtual std::vector<RuleSummary> rules() const { return {}; }
  // The options that it reads; no others are taken.
  virtual std::vector<PassOption> options() const { return {}; }
  // True if and only if the model changed. Shapes are inferred before (InferShapes) and valid for
  // the model as it comes in.
  virtual absl::StatusOr<bool> Run(Model& model, PassContext& context) const = 0;
};

}  // namespace pagefuse
