// SPDX-License-Identifier: Apache-2.0
// Keys or values of Attention that are a past and new rows, joined: by a Concat that gives them as
// they are, or seen behind views, casts, parts of a tensor of keys and values, and parts that are
// repeated, as one head for all heads.
#pragma once

#include "absl/status/statusor.h"

#include "pagefuse/passes/analysis/attention/joined_rows.h"
#include "pagefuse/passes/analysis/indexing/broadcast_proof.h"
#include "pagefuse/passes/analysis/indexing/layout.h"
#include "pagefuse/passes/edit/graph_builder.h"

namespace pagefuse {

struct JoinedCache {
  // One part of the rows: `value` as it is, or the view [B, K, ., D] of it that `at` and `order` say.
  struct Part {
    Value* value = nullptr;
    std::vector<IndexExpr> at = {};
    std::vector<int64_t> order = {};  // of the axes that are left, those of length 1 left out
    std::vector<int64_t> ones = {};   // where these are
    // How often an axis of length 1 is repeated; empty: none is.
    std::vector<int64_t> repeats = {};
  };
  Node* concat = nullptr;  // that gives the rows as they are
  bool present = false;    // another Attention gives them, which has taken them
  Part past, fresh;
  std::vector<DataType> types = {};  // from the rows to where they are joined
  AxisOf past_rows;                  // how many the past has
};

// Of input `port` of an Attention.
absl::StatusOr<JoinedCache> FindJoinedCache(IndexingAnalysis& reader, const Node& attention,
                                            int port);

// Either part as Attention takes it.
Value* PastOf(GraphBuilder& builder, const JoinedCache& joined);
Value* FreshOf(GraphBuilder& builder, const JoinedCache& joined);

}  // namespace pagefuse
