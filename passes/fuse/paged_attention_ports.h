// The inputs of a PagedAttention made from a site that was read by element, and its result put
// back.
#pragma once

#include <string>
#include <vector>

#include "pagefuse/passes/fuse/score_biases.h"

namespace pagefuse {

// FailedPrecondition where log-sum-exps are not -inf in rows that see no key.
absl::Status CheckLowSums(const std::optional<LogSums>& sums);

// FailedPrecondition if they are elements of a list in an order that is written down: the op's are
// 0 and ascend.
absl::Status CheckFirstTokens(const Value& first_tokens);

// The axes where a pool [NB, Hk, BS, D] is one of NB * Hk blocks of one head, so that it is read as
// it lies: each sequence becomes one for each of its heads. `axes` themselves where rows lie before
// heads, or where something else is of a whole sequence; `why` says what.
PagedAxes AxesByHead(const PagedAxes& axes, const ReadRows& key, const ReadRows& value,
                     const VisibleKeys& visible, std::string& why);

class PagedAttentionPorts {
 public:
  PagedAttentionPorts(GraphBuilder& builder, const AttentionSite& site, const PagedAxes& axes,
                      const VisibleKeys& visible);

  absl::StatusOr<std::vector<Value*>> Inputs(const ReadRows& key, const ReadRows& value,
                                             const CacheFormat& format, const ScoreBiases& biases);
  // The op's output as the site's.
  absl::StatusOr<Value*> Result(Value* output, const ReadRows& key, const ReadRows& value);

  // The op's log-sum-exps as the site's.
  absl::StatusOr<Value*> Sums(Value* sums, const LogSums& site_sums);

  // The op's axes, and its ports of a step's metadata.
  AxisAtoms Tokens() const;
  AxisAtoms Heads() const;
  absl::StatusOr<Value*> FirstTokens();
  absl::StatusOr<Value*> Lengths();
  absl::StatusOr<Value*> BlockTable();
  Arranger& arranger() { return arranger_; }

 private:
  absl::StatusOr<Value*> Cache(const Element& codes, const AtomPtr& along);
  absl::StatusOr<Value*> ValueCache(const ReadRows& key, const ReadRows& value);
  absl::StatusOr<Value*> ScaleCache(const Element& scale);
  absl::StatusOr<Value*> TensorScale(const ReadRows& rows, bool with_number);
  Value* AsFloat(Value* scales, const Value& like);
  Value* AsSingle(Value* scale);
  absl::StatusOr<Value*> BySequence(const Element& element);
  absl::StatusOr<Value*> RaggedTable(const Element& table);
  absl::StatusOr<Value*> TableByHead(Value* table, const Dim& columns);
  AxisAtoms Blocks() const;
  Dim NumSequences() const;
  static bool IsPrefix(const ReadRows& key, const ReadRows& value, const AttentionSite& site);

  GraphBuilder& builder_;
  const AttentionSite& site_;
  const PagedAxes& axes_;
  const VisibleKeys& visible_;
  Arranger arranger_;
};

}  // namespace pagefuse
