// SPDX-License-Identifier: Apache-2.0
// Who reads the rows of earlier tokens that a decoder is given, and gives them back with the new ones.
//
// A paged cache holds for each attention the rows that the same attention had in every earlier step,
// as they were. That is what the graph reads only if every past has one reader in one role, which
// reads it as it is and gives it back with its own new rows, and if all attentions have a past or
// none has. A past may have several parts, each of its own reader; one output has them all.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"

#include "pagefuse/ir/graph/graph.h"

namespace pagefuse {

// The output that a past becomes in the next step, told by the names that exporters give them:
// past_key_values.0.key and present.0.key. Null if none is called so.
const Value* NamedPresentOf(const Graph& graph, const std::string& past);

// What an attention reads a past as.
struct PastUse {
  const Value* past = nullptr;  // a graph input
  std::string place = {};       // the part of it that is read, empty: all of it
  std::string_view role;        // "keys", "values", ..
  // Rows of the new tokens, which follow those of the past. Attentions that share them share the
  // past. Null: they are shared with no other.
  const Value* fresh = nullptr;
  const Value* present = nullptr;  // the output that has both, null: none
  bool in_place = false;           // the rows are written where the past is
};

class PastLedger {
 public:
  // `graph` as it was exported: what is called the present of what.
  explicit PastLedger(const Graph& graph);

  // FailedPrecondition naming the attention and the past that is read otherwise than said above.
  absl::Status Note(const Node& attention, const PastUse& use);
  // Of an attention that has none.
  void NoteNone(const Node& attention);
  // When all are noted. FailedPrecondition if some have a past and others none, or if the graph is
  // given a past that none of them reads.
  absl::Status Check() const;

 private:
  struct Taken {
    std::string attention;
    std::string_view role;
    const Value* fresh = nullptr;
  };

  absl::Status CheckPresent(const Node& attention, const PastUse& use);

  std::map<std::string, std::string> presents_;  // by past, as they are called
  std::map<std::string, std::string> pasts_;     // the same by present
  std::map<std::pair<std::string, std::string>, Taken> taken_;
  std::map<std::string, std::string> present_of_, past_of_;  // as attentions give them back
  std::string unread_;                                       // an input that is called a past
  std::string with_past_, without_past_;                     // an attention each
};

}  // namespace pagefuse
