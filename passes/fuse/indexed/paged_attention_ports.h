// SPDX-License-Identifier: Apache-2.0
// Makes the inputs of a PagedAttention from attention that was read by element, and brings its
// result to the layout of the original.
#pragma once

#include <string>
#include <vector>

#include "pagefuse/passes/fuse/indexed/score_biases.h"

namespace pagefuse {

// FailedPrecondition where log-sum-exps are not -inf in rows that see no key.
absl::Status CheckLowSums(const std::optional<LogSums>& sums);

// The axes where a pool [NB, Hk, BS, D] is one of NB * Hk blocks of one head, so that it is read as
// it lies: each sequence becomes one for each of its heads. `axes` themselves where rows lie before
// heads, or where something else is of a whole sequence; `why` says what.
PagedAxes AxesByHead(const PagedAxes& axes, const ReadRows& key, const ReadRows& value,
                     const AttentionMaskPorts& visible, std::string& why);

class PagedAttentionPorts {
 public:
  PagedAttentionPorts(GraphBuilder& builder, const AttentionMatch& match, const PagedAxes& axes,
                      const AttentionMaskPorts& visible);

  absl::StatusOr<std::vector<Value*>> Inputs(const ReadRows& key, const ReadRows& value,
                                             const CacheFormat& format, const ScoreBiases& biases);
  // The op's output as the match's.
  absl::StatusOr<Value*> Result(Value* output, const ReadRows& key, const ReadRows& value);

  // The op's log-sum-exps as the match's.
  absl::StatusOr<Value*> Sums(Value* sums, const LogSums& site_sums);

  // The op's axes, and its ports of a step's metadata.
  AxisSymbols Tokens() const;
  AxisSymbols Heads() const;
  absl::StatusOr<Value*> FirstTokens();
  absl::StatusOr<Value*> Lengths();
  absl::StatusOr<Value*> BlockTable();
  Layout& layout() { return layout_; }

 private:
  absl::StatusOr<Value*> Cache(const Element& codes, const IndexSymbolPtr& along);
  absl::StatusOr<Value*> ValueCache(const ReadRows& key, const ReadRows& value);
  absl::StatusOr<Value*> ScaleCache(const Element& scale);
  absl::StatusOr<Value*> TensorScale(const ReadRows& rows, bool with_number);
  Value* AsFloat(Value* scales, const Value& like);
  Value* AsSingle(Value* scale);
  absl::StatusOr<Value*> BySequence(const Element& element);
  absl::StatusOr<Value*> RaggedTable(const Element& table);
  absl::StatusOr<Value*> TableByHead(Value* table, const Dim& columns);
  AxisSymbols Blocks() const;
  Dim NumSequences() const;
  static bool IsPrefix(const ReadRows& key, const ReadRows& value, const AttentionMatch& match);

  GraphBuilder& builder_;
  const AttentionMatch& match_;
  const PagedAxes& axes_;
  const AttentionMaskPorts& visible_;
  Layout layout_;
};

}  // namespace pagefuse
