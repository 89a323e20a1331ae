// SPDX-License-Identifier: Apache-2.0
// Says what every op does to the axis that runs over tokens: one rule for each op, for TraceTokens.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

#include "pagefuse/passes/analysis/tokens/token_roles.h"

namespace pagefuse {

// A node as a rule sees it. Inputs are fixed, or rows with axes over tokens; their shapes, and that
// of output 0, are known.
class RowsNode {
 public:
  RowsNode(const Node& node, std::vector<TokenAxes> axes, const TokenSources& sources,
           const SymbolicContents& contents)
      : node_(node), axes_(std::move(axes)), sources_(sources), contents_(contents) {}

  const Node& node() const { return node_; }
  const TokenSources& sources() const { return sources_; }
  int num_inputs() const { return node_.num_inputs(); }
  bool has(int i) const { return node_.input(i) != nullptr; }
  const Shape& shape(int i) const { return *node_.input(i)->shape(); }
  int rank(int i) const { return shape(i).rank(); }
  const Shape& output() const { return *node_.output(0)->shape(); }
  // None for inputs that are fixed or omitted.
  TokenAxes axes(int i) const { return i < num_inputs() ? axes_[i] : TokenAxes{}; }
  bool fixed(int i) const { return axes(i).none(); }
  // OK if all inputs from `first` on are fixed.
  absl::Status CheckFixedFrom(int first) const;

  // An attribute, or the integers of an input that are known as numbers.
  int64_t Int(std::string_view name, int64_t default_value) const;
  std::optional<std::vector<int64_t>> Ints(int input) const;
  // `axis` of input `i`, counted from the front.
  int Axis(int64_t axis, int i = 0) const;

  // FailedPrecondition that names the node and its op: `... mixes tokens: <why>`.
  absl::Status Mixes(std::string_view why) const;
  // Mixes, if the op works along that axis of input `i` and the axis runs over tokens.
  absl::Status CheckApart(int i, int axis) const;
  // `axes` and `more`, axes of output 0, or Mixes if they are different ones.
  absl::StatusOr<TokenAxes> Joined(TokenAxes axes, TokenAxes more) const;
  // Axes of output 0 by numpy's broadcast of inputs [first, last): Mixes if rows of different
  // tokens meet, or if a fixed input has numbers of its own along an axis over tokens.
  absl::StatusOr<TokenAxes> Broadcast(int first, int last) const;

 private:
  const Node& node_;
  std::vector<TokenAxes> axes_;  // by input
  const TokenSources& sources_;
  const SymbolicContents& contents_;
};

// The axes of the outputs over tokens, or why the op mixes tokens.
using TokenRule = absl::StatusOr<TokenAxes> (*)(const RowsNode& node);

// Null for an op that is not known to work on each token alone.
TokenRule FindTokenRule(const Node& node);

// The rules by family: those of ".Gather" and "com.microsoft.MoE".
using TokenRules = absl::flat_hash_map<std::string, TokenRule>;
const TokenRules& LayoutRules();    // views, slices, joins
const TokenRules& IndexingRules();  // gathers and scatters
const TokenRules& ProductRules();

// Where the axes over tokens are after a view of `from` as `to`, with `sequence` tokens a sequence;
// nullopt if it cuts them, or joins them with others.
std::optional<TokenAxes> AxesOfView(const Shape& from, const Shape& to, TokenAxes axes,
                                    const Dim& sequence);

}  // namespace pagefuse
