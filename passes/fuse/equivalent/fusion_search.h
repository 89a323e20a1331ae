// SPDX-License-Identifier: Apache-2.0
// Fusions found by what is computed: an op's ports are looked for above a value that may be its
// output, and the nodes between are compared with the op on numbers that tell it from any other
// function (analysis/functions/test_vectors.h). How the nodes spell it does not matter.
//
// A fusion says which outputs and ports may be meant, and writes the candidates for the replacement
// as function texts over them; the search does the rest.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/passes/analysis/functions/computed_region.h"
#include "pagefuse/passes/analysis/functions/result_equality.h"
#include "pagefuse/passes/analysis/functions/test_vectors.h"
#include "pagefuse/passes/edit/graph_index.h"
#include "pagefuse/passes/pass.h"

namespace pagefuse {

struct FusionPort {
  std::string name;
  ProbeRole role = ProbeRole::kRows;
  // Read by position, slot or length: values computed from it may have other readers.
  bool metadata = false;
  // May be computed by nodes of the kind that the op is made of, so that every value above the
  // output is a candidate. Else inputs of the graph, constants, and casts and views of either.
  bool inner = false;
  std::function<bool(const Value&)> fits = {};
};

using BoundPorts = std::map<std::string, Value*>;
// The elements of integer ports.
using PortIntegers = std::map<std::string, std::vector<int64_t>>;

// What to put in for ports that were found.
struct Draft {
  // Function texts `(ports) => (outputs) { ... }`; the first that gives the same is taken.
  std::vector<std::string> texts;
  std::vector<ResultRule> rules;  // one an output
  // By port: indices stay below the limit; windows end every `step`.
  std::map<std::string, int64_t> limits = {};
  int64_t step = 1;
  DimSizes sizes = {};  // of symbols that depend on each other
  // There are probes whose sums no order changes, and on these all results are equal.
  bool has_exact_sums = false;
  // Rows become rows of the result as they are, or with one number added: in floats all bits count.
  bool copies_rows = false;
  // Makes integers of ports what they are together, such as lengths that fit offsets.
  std::function<void(uint32_t seed, PortIntegers& integers)> arrange = {};
};

struct OutputSpec {
  std::string name;
  Value* value = nullptr;
  std::string cache = {};  // the port that it is an update of
};

// A text that gives the same as a region, and what that takes for granted; empty if nothing.
struct FoundText {
  std::string text;
  std::string assumes;
};

class FusionSearch {
 public:
  FusionSearch(Model& model, PassContext& context, const GraphScope& scope);

  const Graph& graph() const { return *scope_.graph; }
  const SymbolicContents& contents() const { return context_.contents; }
  // The values of the graph that nodes compute, the last first.
  std::vector<Value*> ComputedValues() const;

  // Ports come in an order in which each narrows the next. `draft` may refuse by giving no text.
  // True if the op was put in.
  absl::StatusOr<bool> Fuse(
      const std::string& rule, const std::vector<OutputSpec>& outputs,
      const std::vector<FusionPort>& ports,
      const std::function<Draft(const BoundPorts&, const ComputedRegion&)>& draft);

  // All that `outputs` are computed by.
  Upstream UpstreamOf(const std::vector<Value*>& outputs) const;
  // A reason not to try at all, which is less near than any reading.
  void NoteMissedMatch(const std::string& rule, const Value& output, std::string_view condition);
  // Notes for each rule and output how near the nearest reading came.
  void ReportMisses() const;

 private:
  struct Attempt;
  absl::StatusOr<bool> Bind(Attempt& attempt, size_t next);
  absl::StatusOr<bool> Try(Attempt& attempt);
  std::vector<Value*> Candidates(const Attempt& attempt, const FusionPort& spec) const;
  absl::StatusOr<FoundText> FindText(const Attempt& attempt, const ComputedRegion& region,
                                     const Draft& draft) const;
  absl::Status Rewrite(const Attempt& attempt, const ComputedRegion& region,
                       const FoundText& found);
  // On the node that the rule put in.
  void Note(const std::string& rule, const std::string& assumes);

  Model& model_;
  PassContext& context_;
  GraphScope scope_;
  GraphIndex index_;
  RegionScope region_scope_;
  std::map<std::pair<std::string, std::string>, MissedMatch> misses_;  // by rule and output
};

}  // namespace pagefuse
