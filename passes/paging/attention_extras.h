// SPDX-License-Identifier: Apache-2.0
// What attentions of a graph that is being paged have and ONNX's Attention has not.
//
// Nodes give way to others while attention is recognised and lowered, each with the metadata of the
// one before it. The extras go by a mark in it, so that they stay with the attention, and one that
// was lost is noticed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/ir/tensor/shape.h"
#include "pagefuse/passes/paging/compressed_matches.h"

namespace pagefuse {

struct AttentionExtras {
  Value* sinks = nullptr;   // [H]: scores that take probability and have no value; null: none
  Value* slopes = nullptr;  // [H]: of a linear bias; null: none
  const Value* counted = nullptr;  // the mask whose ones count the keys of the bias
  int64_t most_keys = 0;           // for which it is that bias; 0: for any number
  bool key_bias = false;           // the last column of the keys is one (key_bias.h)
  // Of GroupQueryAttention: the mask whose ones count its keys, null if inputs say how many they
  // are or all tokens are; and the tokens before the new ones, unknown if nothing but these inputs
  // says them.
  const Value* lengths = nullptr;
  std::optional<Dim> past = std::nullopt;
  std::optional<CompressedMatch> compressed = std::nullopt;
};

class ExtrasOfAttention {
 public:
  // Marks that nodes of the file have mean nothing.
  explicit ExtrasOfAttention(const Graph& graph);

  // Those of a node; without any so far, which are added.
  AttentionExtras& At(Node* node);
  // Null if the node has none.
  const AttentionExtras* Find(const Node& node) const;
  // FailedPrecondition naming an attention whose extras are not at one Attention of the graph.
  absl::Status CheckKept(const Graph& graph) const;
  // Takes the marks off all nodes.
  static void Unmark(const Graph& graph);

 private:
  struct Entry {
    std::string attention;  // as the file calls it
    AttentionExtras extras;
  };
  std::vector<Entry> entries_;
};

}  // namespace pagefuse
