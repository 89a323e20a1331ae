// SPDX-License-Identifier: Apache-2.0
// fuse-indexer-topk: fuses the selection of the top-k columns of each row of scores within its
// range, counted from the begin of the range, into IndexerTopK.
//
//   values, place = TopK (logits that are -inf outside [ks, ke), K)
//   indices = Where (k < ke - ks, place - ks, -1)
//     =>  indices = IndexerTopK <topk = K> (logits, ks, ke)
#include <cmath>
#include <optional>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/analysis/indexing/index_tensor.h"
#include "pagefuse/passes/analysis/indexing/replacement.h"
#include "pagefuse/passes/edit/match_failure.h"
#include "pagefuse/passes/edit/ports.h"
#include "pagefuse/passes/fuse/fuse.h"
#include "pagefuse/passes/fuse/indexed/match_pass.h"

namespace pagefuse {
namespace {

constexpr const char* kName = "fuse-indexer-topk";

using Kind = IndexSymbol::Kind;

struct TopKMatch {
  Element output;
  IndexSymbolPtr row, rank;
  IndexSymbolPtr column;
  const Node* topk = nullptr;
  IndexExpr begin, end;  // of the columns that a row has
};

class TopKReader {
 public:
  TopKReader(IndexingAnalysis& reader, Value* output) : reader_(reader), output_(output) {}

  absl::StatusOr<TopKMatch> Read() {
    PF_ASSIGN_OR_RETURN(match_.output, reader_.Whole(output_));
    if (match_.output.at.size() != 2) return absl::NotFoundError("no matrix");
    match_.row = match_.output.at[0].symbol();
    match_.rank = match_.output.at[1].symbol();
    if (!match_.row || !match_.rank) return absl::NotFoundError("one row or one rank");
    const auto chosen = reader_.Number(reader_.Operand(match_.output, 1));
    const auto other = reader_.Number(reader_.Operand(match_.output, 2));
    const bool keeps = other == -1;
    if (!keeps && chosen != -1) return absl::NotFoundError("nothing is marked by -1");
    PF_RETURN_IF_ERROR(ReadPlace(reader_.ReadIndex(reader_.Operand(match_.output, keeps ? 1 : 2))));
    PF_RETURN_IF_ERROR(ReadColumns());
    PF_RETURN_IF_ERROR(ReadGiven(reader_.Operand(match_.output, 0), keeps));
    return match_;
  }

 private:
  // place[row, rank] - begin
  absl::Status ReadPlace(const IndexExpr& form) {
    for (const auto& [key, term] : form.terms()) {
      const IndexSymbolPtr& symbol = term.first;
      const Node* node = symbol->kind == Kind::kLoad ? symbol->tensor->producer() : nullptr;
      if (!node || !node->Is("TopK") || symbol->tensor->producer_index() != 1) continue;
      if (!IsOwnEntry(symbol->args)) {
        return MatchFailure("an entry is another rank, or of another row, than TopK gave it");
      }
      match_.topk = node;
      offset_ = IndexExpr::Of(symbol) - form;
    }
    if (!match_.topk) return absl::NotFoundError("no places of TopK");
    const auto& shape = match_.topk->input(0)->shape();
    const bool last =
        shape && shape->rank() == 2 && NormalAxis(IntOr(*match_.topk, "axis", -1), 2) == 1;
    if (!last || IntOr(*match_.topk, "largest", 1) != 1 || IntOr(*match_.topk, "sorted", 1) != 1) {
      return MatchFailure("TopK does not take the largest of each row in order");
    }
    reader_.Visit(*match_.topk);
    return absl::OkStatus();
  }

  bool IsOwnEntry(const std::vector<IndexExpr>& at) const {
    return at.size() == 2 && at[0].Key() == IndexExpr::Of(match_.row).Key() &&
           at[1].Key() == IndexExpr::Of(match_.rank).Key();
  }

  // The range outside of which scores are hidden.
  absl::Status ReadColumns() {
    const IndexSymbolPtr column = reader_.NewAxis((*match_.topk->input(0)->shape())[1]);
    match_.column = column;
    const Element logits =
        reader_.Source({match_.topk->input(0), {IndexExpr::Of(match_.row), IndexExpr::Of(column)}});
    const Node* node = logits.producer();
    if (node && node->Is("MqaLogits", "pagefuse")) {
      match_.begin = reader_.ReadIndex({node->input(ports::MqaLogits::kBegin), {logits.at[0]}});
      match_.end = reader_.ReadIndex({node->input(ports::MqaLogits::kEnd), {logits.at[0]}});
      return absl::OkStatus();
    }
    if (node && node->Is("PagedMqaLogits", "pagefuse")) return ReadPaged(*node, logits.at[0]);
    if (node && node->Is("Where")) return ReadMasked(logits, column);
    if (node && node->Is("Add")) return ReadAdded(logits, column);
    return MatchFailure("the scores are not hidden outside a range of columns");
  }

  absl::Status ReadPaged(const Node& node, const IndexExpr& row) {
    const auto& shape = node.input(0)->shape();
    if (!shape || shape->rank() != 4) return MatchFailure("the queries' shape is not known");
    const auto [sequence, query] = DivMod(row, (*shape)[1]);
    const IndexExpr length =
        reader_.ReadIndex({node.input(ports::PagedMqaLogits::kLengths), {sequence}});
    match_.begin = IndexExpr(0);
    match_.end = length - IndexExpr((*shape)[1]) + query + IndexExpr(1);
    return absl::OkStatus();
  }

  absl::Status ReadMasked(const Element& logits, const IndexSymbolPtr& column) {
    const auto chosen = reader_.Number(reader_.Operand(logits, 1));
    const auto other = reader_.Number(reader_.Operand(logits, 2));
    const bool keeps = other && HidesScore(*other);
    if (!keeps && !(chosen && HidesScore(*chosen))) return MatchFailure("no column is hidden");
    const Element condition = reader_.Operand(logits, 0);
    PF_ASSIGN_OR_RETURN(const Conditions conditions, keeps ? reader_.ReadConditions(condition)
                                                           : reader_.ReadNegation(condition));
    return SetBounds(conditions, column);
  }

  // Scores and a mask of 0 and the lowest.
  absl::Status ReadAdded(const Element& logits, const IndexSymbolPtr& column) {
    for (int side : {1, 0}) {
      const auto seen = reader_.ReadHiding(reader_.Operand(logits, side));
      if (seen.ok() && !seen->empty()) return SetBounds(*seen, column);
    }
    return MatchFailure("what is added to the scores hides no range of columns");
  }

  absl::Status SetBounds(const Conditions& conditions, const IndexSymbolPtr& column) {
    match_.begin = IndexExpr(0);
    match_.end = IndexExpr(column->extent);
    const IndexExpr n = IndexExpr::Of(column);
    for (const IndexExpr& bound : conditions) {
      const auto term = bound.terms().find(column->key);
      const auto sign = term == bound.terms().end() ? std::nullopt : term->second.second.constant();
      if (sign == 1) {
        match_.begin = n - bound;
      } else if (sign == -1) {
        match_.end = bound + n + IndexExpr(1);
      } else {
        return MatchFailure("the condition ", bound.Key(), " >= 0 is no bound of columns");
      }
    }
    return absl::OkStatus();
  }

  // rank < end - begin, or that the value is no hidden one.
  absl::Status ReadGiven(const Element& condition, bool keeps) {
    if (offset_.Key() != match_.begin.Key()) {
      return MatchFailure("places are counted from ", offset_.Key(), ", columns begin at ",
                          match_.begin.Key());
    }
    if (const auto hidden = TrueOfHidden(condition)) {
      if (*hidden != keeps) return absl::OkStatus();
      return MatchFailure("entries are given where the value is a hidden one");
    }
    PF_ASSIGN_OR_RETURN(const Conditions given, keeps ? reader_.ReadConditions(condition)
                                                      : reader_.ReadNegation(condition));
    const IndexExpr expected =
        match_.end - match_.begin - IndexExpr(1) - IndexExpr::Of(match_.rank);
    if (given.size() == 1 && given[0].Key() == expected.Key()) return absl::OkStatus();
    return MatchFailure("entries are given where ", given.empty() ? "always" : given[0].Key(),
                        " >= 0, expected ", expected.Key());
  }

  // A comparison of the values that TopK took with what hides a score: whether it is true of those
  // that are hidden. Nullopt for another condition.
  std::optional<bool> TrueOfHidden(const Element& condition) {
    if (condition.From("Not")) {
      const auto inner = TrueOfHidden(reader_.Operand(condition, 0));
      return inner ? std::optional(!*inner) : std::nullopt;
    }
    const bool hidden = condition.From("IsInf") || condition.From("Equal") ||
                        condition.From("Less") || condition.From("LessOrEqual");
    if (!hidden && !condition.From("Greater") && !condition.From("GreaterOrEqual")) {
      return std::nullopt;
    }
    const Element values = reader_.Operand(condition, 0);
    if (values.value != match_.topk->output(0) || !IsOwnEntry(values.at)) return std::nullopt;
    if (condition.From("IsInf")) {
      const bool negative = IntOr(*condition.producer(), "detect_negative", 1) != 0;
      return negative ? std::optional(true) : std::nullopt;
    }
    const auto limit = reader_.Number(reader_.Operand(condition, 1));
    // Nothing is less than -inf, and everything is not.
    const bool says = limit && HidesScore(*limit) &&
                      (std::isfinite(*limit) || condition.From("Equal") ||
                       condition.From("Greater") || condition.From("LessOrEqual"));
    return says ? std::optional(hidden) : std::nullopt;
  }

  IndexingAnalysis& reader_;
  Value* output_;
  TopKMatch match_;
  IndexExpr offset_;
};

absl::StatusOr<std::vector<Value*>> Build(Replacement& replacement, const TopKMatch& match) {
  GraphBuilder& builder = replacement.builder();
  Value* logits = match.topk->input(0);
  const auto count = match.rank->extent.constant();
  if (!count) return MatchFailure("the number of indices a row is not known");
  Layout layout(builder, {logits});
  PF_ASSIGN_OR_RETURN(Value * begin, IndexVector(builder, layout, match.begin, match.row));
  PF_ASSIGN_OR_RETURN(
      Value * end, IndexVector(builder, layout, WithinColumns(match.end, match.column), match.row));
  Node* node = builder.AddNode("pagefuse", "IndexerTopK",
                               {logits, layout.AsInt32(begin), layout.AsInt32(end)}, 1);
  node->SetAttribute("topk", MakeAttribute(*count));
  const DataType type = match.output.value->dtype();
  if (type == DataType::kInt32) return std::vector<Value*>{node->output(0)};
  return std::vector<Value*>{builder.Cast(node->output(0), type)};
}

absl::Status Fuse(Node& node, const GraphScope& scope, PassContext& context) {
  Value* output = node.output(0);
  IndexingAnalysis reader(context.contents);
  PF_ASSIGN_OR_RETURN(const TopKMatch match, TopKReader(reader, output).Read());
  const auto& values = match.topk->output(0);
  const bool values_read = values && (values->is_output() || !values->uses().empty());
  // The values themselves may have been compared; the op has no such output.
  if (values_read && values->is_output())
    return MatchFailure("the values of TopK are a graph output");
  Replacement replacement(*scope.graph, *output, kName);
  return replacement.Finish(Build(replacement, match), {output}, *scope.opsets, context.contents);
}

}  // namespace

std::unique_ptr<Pass> FuseIndexerTopK() {
  return MakeMatchPass(
      kName, "Fuses the selection of the top-k columns within each row's range into IndexerTopK.",
      IntegerChoices, Fuse);
}

}  // namespace pagefuse
