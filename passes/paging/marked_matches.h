// SPDX-License-Identifier: Apache-2.0
// Attention that is recognised while a graph is being paged, because something was taken of it that
// pages have and Attention has not.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"

#include "pagefuse/passes/paging/grouped_attention.h"

namespace pagefuse {

// Sites are known again by the name of their last node.
class MarkedMatches {
 public:
  // By what they sum values: "a softmax with a sink".
  explicit MarkedMatches(std::string_view what) : what_(what) {}

  void Mark(Node* last, const AttentionExtras& extras);
  // Runs what recognises attention, and notes what the matches had at the nodes that it made of them.
  // `contents` are those of the graph then. FailedPrecondition naming one that is no attention: the
  // graph means something else by then.
  absl::Status Recognise(Model& model, SymbolicContents& contents, ExtrasOfAttention& extras);

 private:
  struct Named {
    AttentionExtras extras;
    std::string name;
  };

  std::string what_;
  std::map<std::string, Named> named_;
};

// Erases those that nothing reads any more, one of which may go along with another (EraseDead).
void EraseAllDead(const std::vector<Node*>& nodes, SymbolicContents& contents);

}  // namespace pagefuse
