// SPDX-License-Identifier: Apache-2.0
// fuse-index-logits: fuses the rectified scores of an indexer, over dense keys or a paged cache of
// bytes, into MqaLogits or PagedMqaLogits. The scores are read by element (logits_match.h).

#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/analysis/attention/logits_match.h"
#include "pagefuse/passes/analysis/indexing/byte_rows.h"
#include "pagefuse/passes/analysis/indexing/index_tensor.h"
#include "pagefuse/passes/analysis/indexing/replacement.h"
#include "pagefuse/passes/edit/match_failure.h"
#include "pagefuse/passes/fuse/fuse.h"
#include "pagefuse/passes/fuse/indexed/match_pass.h"
#include "pagefuse/passes/fuse/indexed/paged_mqa_logits.h"

namespace pagefuse {
namespace {

constexpr const char* kName = "fuse-index-logits";

// Dense keys are codes; numbers are scored over paged keys, which the page stage puts in.
absl::Status CheckCodes(const LogitsMatch& match) {
  for (const Value* value : {match.query.value, match.key.value}) {
    if (IsCodeType(value->dtype())) continue;
    return MatchFailure(*value, ": expected float8e4m3fn codes, or keys in a paged ",
                        "cache, got dense ", DataTypeName(value->dtype()));
  }
  return absl::OkStatus();
}

// Bounds of the keys that a row sees: first <= n <= last.
struct Range {
  std::optional<IndexExpr> first, last;
};
absl::StatusOr<Range> RangeOf(const LogitsMatch& match) {
  Range range;
  const IndexExpr n = IndexExpr::Of(match.n);
  for (const IndexExpr& condition : match.visible) {
    if (ProvablyNotNegative(condition.Lower())) continue;
    const auto term = condition.terms().find(match.n->key);
    const auto sign =
        term == condition.terms().end() ? std::nullopt : term->second.second.constant();
    std::optional<IndexExpr>* bound = sign == -1 ? &range.last : sign == 1 ? &range.first : nullptr;
    if (!bound || *bound) {
      return MatchFailure("the condition ", condition.Key(), " >= 0 is no bound of a range");
    }
    *bound = sign == -1 ? condition + n : n - condition;
  }
  return range;
}

class DenseLogitsPorts {
 public:
  DenseLogitsPorts(GraphBuilder& builder, const LogitsMatch& match)
      : builder_(builder), match_(match), layout_(builder, Sources(match)) {}

  absl::StatusOr<Value*> Build() {
    if (match_.key_factors.size() != 1) return MatchFailure("keys have no scale, or more than one");
    PF_ASSIGN_OR_RETURN(const AxisSymbols rows, RowsOfLogits(match_));
    if (rows.size() != 1) return MatchFailure("a row of queries is no single axis");
    PF_ASSIGN_OR_RETURN(Value * q, layout_.Gathered(match_.query, {rows, {match_.h}, {match_.d}}));
    PF_ASSIGN_OR_RETURN(Value * k, layout_.Gathered(match_.key, {{match_.n}, {match_.d}}));
    PF_ASSIGN_OR_RETURN(Value * scale, layout_.Gathered(match_.key_factors[0], {{match_.n}}));
    PF_ASSIGN_OR_RETURN(Value * weights, WeightsOfLogits(builder_, layout_, match_));
    PF_ASSIGN_OR_RETURN(const Range range, RangeOf(match_));
    const IndexExpr first = range.first ? *range.first : IndexExpr(0);
    const IndexExpr end = range.last ? *range.last + IndexExpr(1) : IndexExpr(match_.n->extent);
    PF_ASSIGN_OR_RETURN(Value * ks, Bound(WithinColumns(first, match_.n), rows[0]));
    PF_ASSIGN_OR_RETURN(Value * ke, Bound(WithinColumns(end, match_.n), rows[0]));
    Node* node = builder_.AddNode("pagefuse", "MqaLogits", {q, k, scale, weights, ks, ke}, 1);
    node->SetAttribute("clean_logits", MakeAttribute(int64_t{1}));
    return layout_.Spread(node->output(0), {rows, {match_.n}}, match_.output);
  }

 private:
  static std::vector<Value*> Sources(const LogitsMatch& match) {
    std::vector<Value*> sources = {match.query.value, match.key.value};
    for (const Element& factor : match.row_factors) sources.push_back(factor.value);
    return sources;
  }

  absl::StatusOr<Value*> Bound(const IndexExpr& form, const IndexSymbolPtr& row) {
    // An input as it is, whatever its type.
    if (const IndexSymbolPtr symbol = form.symbol();
        symbol && symbol->kind == IndexSymbol::Kind::kLoad) {
      PF_ASSIGN_OR_RETURN(Value * value, layout_.Gathered({symbol->tensor, symbol->args}, {{row}}));
      return layout_.AsInt32(value);
    }
    PF_ASSIGN_OR_RETURN(Value * value, IndexVector(builder_, layout_, form, row));
    return layout_.AsInt32(value);
  }

  GraphBuilder& builder_;
  const LogitsMatch& match_;
  Layout layout_;
};

// The length of the fast digit of `m`, where its slow one is read.
std::optional<Dim> FastDigit(const IndexExpr& form, const IndexSymbolPtr& m) {
  for (const auto& [key, term] : form.terms()) {
    const IndexSymbol& symbol = *term.first;
    if (symbol.kind == IndexSymbol::Kind::kDiv && symbol.args[0].Key() == m->key)
      return symbol.divisor;
    for (const IndexExpr& arg : symbol.args) {
      if (const auto digit = FastDigit(arg, m)) return digit;
    }
  }
  return std::nullopt;
}

// The length of the digit of rows that a sequence has, where the keys say so.
std::optional<Dim> RowsOfSequence(const LogitsMatch& match) {
  const IndexSymbolPtr m = match.output.at.size() == 2 ? match.output.at[0].symbol() : nullptr;
  if (!m) return std::nullopt;
  for (const IndexExpr& at : match.key.at) {
    if (const auto digit = FastDigit(at, m)) return digit;
  }
  return std::nullopt;
}

absl::StatusOr<std::vector<Value*>> Build(GraphBuilder& builder, IndexingAnalysis& reader,
                                          const LogitsMatch& match) {
  PF_ASSIGN_OR_RETURN(Value * result, IsPaged(match) ? BuildPagedLogits(builder, reader, match)
                                                     : DenseLogitsPorts(builder, match).Build());
  return std::vector<Value*>{result};
}

std::vector<Node*> Places(const Graph& graph) {
  return NodesOf(graph, [](const Node& node) {
    const Node* last = node.Is("Transpose") ? node.input(0)->producer() : &node;
    const bool masks = last && (last->Is("Where") || last->Is("Add"));
    return masks && node.output(0)->dtype() == DataType::kFloat;
  });
}

absl::Status Fuse(Node& node, const GraphScope& scope, PassContext& context) {
  Value* output = node.output(0);
  IndexingAnalysis whole(context.contents);
  PF_ASSIGN_OR_RETURN(LogitsMatch match, ReadLogits(whole, output, {}));
  if (!IsPaged(match)) PF_RETURN_IF_ERROR(CheckCodes(match));
  IndexingAnalysis split(context.contents);
  IndexingAnalysis* reader = &whole;
  if (const auto fast = RowsOfSequence(match)) {
    const Dim slow = match.output.at[0].symbol()->extent.FloorDiv(*fast);
    const IndexExpr rows =
        IndexExpr::Of(split.NewAxis(slow)).Times(*fast) + IndexExpr::Of(split.NewAxis(*fast));
    PF_ASSIGN_OR_RETURN(match, ReadLogits(split, output, {rows}));
    reader = &split;
  }
  PF_RETURN_IF_ERROR(ServesOnly(*reader, {output}));
  Replacement replacement(*scope.graph, *output, kName);
  return replacement.Finish(Build(replacement.builder(), *reader, match), {output}, *scope.opsets,
                            context.contents);
}

}  // namespace

std::unique_ptr<Pass> FuseIndexLogits() {
  return MakeMatchPass(
      kName,
      "Fuses an indexer's scores over dense keys or a paged cache into MqaLogits or "
      "PagedMqaLogits, however they are computed.",
      Places, Fuse);
}

}  // namespace pagefuse
