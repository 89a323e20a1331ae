// Single elements of tensors, followed to where they come from: through transposes, views, slices
// and gathers, which move elements but compute none. `Reshape(Gather(pool, table))[b, n, h, d]` is
// `pool[table[b, n / 4], n mod 4, h, d]`, however an exporter writes it.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/passes/analysis/indexing/index_expr.h"

namespace pagefuse {

// value[at...].
struct Element {
  Value* value = nullptr;
  std::vector<IndexExpr> at;

  Node* producer() const { return value ? value->producer() : nullptr; }
  bool From(std::string_view op) const { return producer() && producer()->Is(op); }
  std::string Key() const;
  bool Mentions(const IndexSymbolPtr& symbol) const;  // in some index
};

// True where every form is not negative.
using Conditions = std::vector<IndexExpr>;

inline constexpr double kLowScore = -1e30;

// Reads elements of one graph. Keeps what it went through.
class IndexingAnalysis {
 public:
  explicit IndexingAnalysis(const SymbolicContents& contents) : contents_(contents) {}

  // The element of the value at one new axis for each of its own; axes of length 1 are at 0.
  // InvalidArgument if its shape is not known.
  absl::StatusOr<Element> Whole(Value* value);
  IndexSymbolPtr NewAxis(const Dim& extent, std::vector<Dim> also_extent = {});

  // Follows nodes that move elements.
  Element Source(Element element);
  // As Source, one node only.
  Element OneStep(Element element);
  // Input `index` of the elementwise node that computes the element, at the same place, from its
  // source.
  Element Operand(const Element& element, int index);
  // The element as an integer; what is not understood is a load.
  IndexExpr ReadIndex(const Element& element);
  // The form where the axis is at another place, its loads read there.
  IndexExpr ReadAt(const IndexExpr& form, const IndexSymbolPtr& axis, const IndexExpr& place);
  // What holds wherever the following readings are looked at: their choices and limits follow it.
  void Assume(const Conditions& conditions);
  // What is added to scores hides them from here on: by default what is as low as a lowest float.
  // Beside a softmax what exp makes nothing of is enough.
  void HideFrom(double low) { low_ = low; }
  bool Hides(double value) const { return value <= low_; }
  // A bool element as a conjunction of inequalities.
  absl::StatusOr<Conditions> ReadConditions(const Element& element);
  // Where it is false.
  absl::StatusOr<Conditions> ReadNegation(const Element& element);
  // A float element that is 0 where the conditions hold, and so low that it hides a score
  // elsewhere.
  absl::StatusOr<Conditions> ReadHiding(const Element& element);
  // The number that the element is, if it is one wherever it is looked at.
  std::optional<double> Number(const Element& element);

  void Visit(const Node& node) { visited_.insert(&node); }
  // The nodes that readings went through.
  const absl::flat_hash_set<const Node*>& visited() const { return visited_; }
  const SymbolicContents& contents() const { return contents_; }

 private:
  // One step of Source; false if the node moves nothing.
  bool Step(Element& element);
  bool StepTranspose(Element& element);
  bool StepView(Element& element);
  bool StepExpand(Element& element);
  bool StepTile(Element& element);
  bool StepSlice(Element& element);
  bool StepSplit(Element& element);
  bool StepGather(Element& element);
  bool StepGatherND(Element& element);
  bool StepGatherElements(Element& element);
  bool StepScatterND(Element& element);
  bool StepConcat(Element& element);
  bool StepJoinedParts(Element& element, int axis);

  std::optional<IndexExpr> ReadCast(const Element& element);
  std::optional<IndexExpr> ReadArithmetic(const Element& element);
  std::optional<IndexExpr> ReadQuotient(const Element& element);
  std::optional<IndexExpr> ReadShare(const Element& product);
  std::optional<IndexExpr> ReadBits(const Element& element);
  std::optional<IndexExpr> ReadJoinedBits(const Element& element);
  std::optional<IndexExpr> ReadChoice(const Element& element);
  std::optional<IndexExpr> ReadConstant(const Element& element);
  std::optional<IndexExpr> ReadRange(const Element& element);
  std::optional<IndexExpr> ReadCount(const Element& element);
  // How many along the reduced axis are true; null if they are no bools.
  IndexSymbolPtr ReadCounted(const Element& element);
  std::optional<IndexExpr> ReadShortSum(const Element& element);
  IndexExpr OperandIndex(const Element& element, int index) {
    return ReadIndex(Operand(element, index));
  }
  bool Assumed(const Conditions& conditions) const;
  IndexExpr Greater(const IndexExpr& a, const IndexExpr& b) const;
  absl::StatusOr<Conditions> ReadComparison(const Element& element);
  // Where a bool, or a number, is true.
  absl::StatusOr<Conditions> ReadTruthOf(const Element& element);
  const SymbolicContents& contents_;
  absl::flat_hash_set<const Node*> visited_;
  int num_axes_ = 0;
  int depth_ = 0;  // of counted axes
  absl::flat_hash_set<std::string> assumed_;
  double low_ = kLowScore;
};

// What a reduction along one axis reads.
struct Reduced {
  Value* value = nullptr;
  int axis = 0;
  Dim length;

  // The element at a place of the axis.
  Element At(const Element& result, const IndexExpr& place) const;
};
std::optional<Reduced> ReducedBy(const Node& node, const SymbolicContents& contents);

// A score that much below others has no part in a softmax, nor among the best.
inline bool HidesScore(double value) { return value <= kLowScore; }
// In a softmax it has none either that exporters write less low: -1e9, or -1e4 as GPT-2 and BERT have
// it; e^-104 is 0 in float.
inline constexpr double kLowBesideSoftmax = -1e4;

}  // namespace pagefuse
