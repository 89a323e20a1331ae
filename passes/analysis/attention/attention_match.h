// SPDX-License-Identifier: Apache-2.0
// Attention wherever it stands in a graph, written out or as an op, read by element: which query,
// key and value elements a result depends on, with what scale, and which keys it sees.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/passes/analysis/attention/written_softmax.h"
#include "pagefuse/passes/analysis/indexing/factors.h"
#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse {

// Added to masked scores.
struct ScoreBias {
  Element element;
  double sign = 1;
};

// output = sum over n of softmax_n(softcap(scale * sum_e query * key)) * value, where the sum of
// the softmax may hold a sink, over the keys n for which all of `visible` is not negative.
struct AttentionMatch {
  Element output;  // at the axes of a row of queries and `d`
  IndexSymbolPtr d, n, e;
  Element query;
  Factors key, value;           // with what stands on the scores for one key
  double scale = 1;             // numbers on query and key included
  double softcap = 0;           // 0: none
  std::optional<Element> sink;  // a score without a key
  Conditions visible;
  std::vector<ScoreBias> biases;
  // Where it is written out. It has the sink too, unless that stands behind it.
  std::shared_ptr<WrittenSoftmax> softmax;
};

// What may stand where an attention's result is: NotFound if the node is no weighted sum by a
// softmax, FailedPrecondition if it is one that is not understood.
//
// `split` gives the digits that an index of the output is made of: an axis that it lacks is one
// digit.
using AxisSplits = std::vector<std::pair<int, Dim>>;  // output axis, length of its fast digit
absl::StatusOr<AttentionMatch> ReadAttention(IndexingAnalysis& reader, Value* output,
                                             const AxisSplits& split = {});

// Nodes that may compute what ReadAttention takes, the last first: a result may be divided by the
// sum of a softmax, and 0 in rows that see no key, behind the sum of products.
std::vector<Node*> AttentionNodes(const Graph& graph);

// The log-sum-exps of a match's rows, sinks included, where the graph has them.
struct LogSums {
  Element element;              // at the axes of a row of queries
  std::optional<double> empty;  // what stands for it in rows that see no key
};
std::optional<LogSums> LogSumsOf(IndexingAnalysis& reader, const Graph& graph,
                                 const AttentionMatch& match);
// As LogSumsOf, of what the softmax itself sums: a sink that stands behind it is left out.
std::optional<LogSums> LogSumsOfKeys(IndexingAnalysis& reader, const Graph& graph,
                                     const AttentionMatch& match);

// FailedPrecondition if something is added to the scores that is no mask.
absl::Status CheckNoBias(const AttentionMatch& match);

// The query in the type that it was cast from, if the result is cast back to that: what an op
// computes in a wider type and gives in its own.
Element NarrowQuery(IndexingAnalysis& reader, const AttentionMatch& match);

}  // namespace pagefuse
