// SPDX-License-Identifier: Apache-2.0
// Single elements of tensors, followed to where they come from: through transposes, views, slices
// and gathers, which move elements but compute none. `Reshape(Gather(pool, table))[b, n, h, d]` is
// `pool[table[b, n / 4], n mod 4, h, d]`, however an exporter writes it.
#pragma once

#include <algorithm>
#include <limits>
#include <map>
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

// True if they hold wherever they are looked at, false if one of them never does.
std::optional<bool> TruthOf(const Conditions& conditions);

inline constexpr double kLowScore = -1e30;

// What a reading takes for granted.
enum class Trust {
  // What exporters see to: lengths of two names that meet are as long as each other, and indices
  // that are divided, or gathered by, are not negative.
  kExporter,
  // Nothing: an axis that may be repeated has an index of its own, and what is not proved is a load.
  kNothing,
};

// Reads elements of one graph. Keeps what it went through.
class IndexingAnalysis {
 public:
  explicit IndexingAnalysis(const SymbolicContents& contents, Trust trust = Trust::kExporter)
      : contents_(contents), trust_(trust) {}

  // The element of the value at one new axis for each of its own; axes of length 1 are at 0.
  // InvalidArgument if its rank is not known.
  absl::StatusOr<Element> Places(Value* value);
  // As Places; InvalidArgument also if a length is not known.
  absl::StatusOr<Element> Whole(Value* value);
  IndexSymbolPtr NewAxis(const Dim& extent, std::vector<Dim> also_extent = {});

  // Follows nodes that move elements.
  Element Source(Element element);
  // As Source, one node only.
  Element OneStep(Element element);
  // Input `index` of the elementwise node that computes the element, at the same place, from its
  // source.
  Element Operand(const Element& element, int index);
  // The element as an integer; what is not understood, wraps around or is rounded is a load.
  IndexExpr ReadIndex(const Element& element);
  // Whether numbers of the type hold whatever the form comes to (ops/infer/exact_integers.h).
  bool ComesOut(DataType type, const IndexExpr& form) const;
  // The form where the axis is at another place, its loads read there.
  IndexExpr ReadAt(const IndexExpr& form, const IndexSymbolPtr& axis, const IndexExpr& place);
  // What holds wherever the following readings are looked at: their choices and limits follow it.
  void Assume(const Conditions& conditions);
  // What is added to scores hides them from here on: by default what is as low as a lowest float.
  // Beside a softmax what exp makes nothing of is enough.
  void HideFrom(double low) {
    low_ = low;
    highest_ = -std::numeric_limits<double>::infinity();
  }
  bool Hides(double value) {
    if (!(value <= low_)) return false;
    highest_ = std::max(highest_, value);
    return true;
  }
  // The highest of the numbers that were taken to hide since HideFrom. Whether they do depends on the
  // scores, which are not known here (HidingNumber in functions/number_ranges.h).
  double highest_hiding() const { return highest_; }
  // The value holds that number everywhere, whatever the graph says of it.
  void TakeAs(const Value* value, double number) { numbers_[value] = number; }
  // What symbols stand for where lengths are compared.
  void Know(std::map<std::string, Dim> sizes) { sizes_ = std::move(sizes); }
  // A bool element as a conjunction of inequalities.
  absl::StatusOr<Conditions> ReadConditions(const Element& element);
  // Where it is false.
  absl::StatusOr<Conditions> ReadNegation(const Element& element);
  // A float element that is 0 where the conditions hold, and so low that it hides a score
  // elsewhere.
  absl::StatusOr<Conditions> ReadHiding(const Element& element);
  // Where a mask shows a key: bools that are true there, or what is added to scores.
  absl::StatusOr<Conditions> ReadMask(const Element& element);
  // Whether an element is 0 or 1, as bools are, and what is computed from them. `inputs`: what is
  // said of inputs of the graph, which masks are by what they are for.
  bool IsZeroOrOne(const Element& element, bool inputs = true);
  // The number that the element is, if it is one wherever it is looked at.
  std::optional<double> Number(const Element& element);

  void Visit(const Node& node) { visited_.insert(&node); }
  // True if the last reading, or all of them together, took so many steps that it was left before its
  // end.
  bool GaveUp() const { return steps_ > kMostSteps || all_steps_ > kMostStepsInAll; }
  // The nodes that readings went through.
  const absl::flat_hash_set<const Node*>& visited() const { return visited_; }
  const SymbolicContents& contents() const { return contents_; }

 private:
  static constexpr int kMostSteps = 4096, kMostStepsInAll = 1 << 17;
  // Forms that are written in so many bytes are not read on: some nodes write their operand twice, and
  // what is made of that twice again.
  static constexpr size_t kLongestForm = 16384;
  // One reading, from its outermost call on. What operands share is read for each of them, so that
  // sums of sums could take forever: the steps are counted.
  class Reading {
   public:
    explicit Reading(IndexingAnalysis& reader) : reader_(reader) {
      if (reader_.nesting_++ == 0) reader_.steps_ = 0;
      reader_.CountStep();
    }
    ~Reading() { --reader_.nesting_; }
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;
    bool TooLong() const { return reader_.GaveUp(); }

   private:
    IndexingAnalysis& reader_;
  };

  // Counts how deeply a function calls itself.
  class Nested {
   public:
    explicit Nested(int& depth) : depth_(depth) { ++depth_; }
    ~Nested() { --depth_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;
    int depth() const { return depth_; }

   private:
    int& depth_;
  };
  static constexpr int kMostCasts = 256;  // one behind the other, of a number

  void CountStep() {
    ++steps_;
    ++all_steps_;
  }
  // True if an element is not followed further: within a reading that is too long, or at indices that
  // are.
  bool StopsAt(const Element& element) const;

  // The index of an operand along one axis, where the result has `index` along it.
  IndexExpr Broadcast(const IndexExpr& index, const Dim& operand, const Dim& result);
  Dim Meant(const Dim& length) const;  // by the sizes that are known
  // True if an index may be cut or gathered by: false for one whose axis is not known to be whole.
  bool IsCertain(const IndexExpr& index) const;
  // True if an index that is gathered by counts from the front.
  bool FromFront(IndexExpr& index, const Dim& length) const;

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
  std::optional<IndexExpr> ReadClip(const Element& element);
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
  // The running sum of a number that is the same everywhere.
  std::optional<IndexExpr> ReadContinued(const Element& element);
  std::optional<IndexExpr> ReadRunningSum(const Element& element);
  IndexExpr OperandIndex(const Element& element, int index) {
    return ReadIndex(Operand(element, index));
  }
  bool Assumed(const Conditions& conditions) const;
  IndexExpr Greater(const IndexExpr& a, const IndexExpr& b) const;
  absl::StatusOr<Conditions> ReadComparison(const Element& element);
  // Where what is cast, a bool or a number, is true.
  absl::StatusOr<Conditions> ReadTruthOf(const Element& cast);
  // As ReadHiding, of the forms in which masks are joined and chosen.
  absl::StatusOr<Conditions> ReadHidingForm(const Element& element);
  std::optional<Element> NegatedIn(const Element& element);

  const SymbolicContents& contents_;
  Trust trust_;
  std::map<std::string, Dim> sizes_;
  std::map<const Value*, double> numbers_;
  int nesting_ = 0;
  int steps_ = 0, all_steps_ = 0;
  int casts_ = 0;
  absl::flat_hash_set<const Node*> visited_;
  int num_axes_ = 0;
  int depth_ = 0;  // of counted axes
  absl::flat_hash_set<std::string> assumed_;
  double low_ = kLowScore;
  double highest_ = -std::numeric_limits<double>::infinity();
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
// it, where the scores are not as large themselves.
inline constexpr double kLowBesideSoftmax = -1e4;
inline bool HidesBesideSoftmax(double value) { return value <= kLowBesideSoftmax; }

}  // namespace pagefuse
