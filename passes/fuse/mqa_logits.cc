// fuse-index-logits: rectified scores of an indexer, over dense keys or a paged cache of bytes,
// become MqaLogits or PagedMqaLogits. The scores are read by element (logits_site.h).
#include <algorithm>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/passes/fuse/fuse.h"
#include "pagefuse/passes/fuse/fusion_parts.h"
#include "pagefuse/passes/fuse/paged_mqa_logits.h"
#include "pagefuse/passes/fuse/site_pass.h"
#include "pagefuse/passes/refused.h"
#include "pagefuse/passes/words/index_tensor.h"
#include "pagefuse/passes/words/logits_site.h"
#include "pagefuse/passes/words/replacement.h"

namespace pagefuse {
namespace {

constexpr const char* kName = "fuse-index-logits";

// Dense keys are codes; numbers are scored over paged keys, which the page stage puts in.
absl::Status CheckCodes(const LogitsSite& site) {
  for (const Value* value : {site.query.value, site.key.value}) {
    if (IsCodeType(value->dtype())) continue;
    return Refused(*value, ": expected float8e4m3fn codes, or keys in a paged ",
                   "cache, got dense ", DataTypeName(value->dtype()));
  }
  return absl::OkStatus();
}

// Bounds of the keys that a row sees: first <= n <= last.
struct Range {
  std::optional<IndexForm> first, last;
};
absl::StatusOr<Range> RangeOf(const LogitsSite& site) {
  Range range;
  const IndexForm n = IndexForm::Of(site.n);
  for (const IndexForm& condition : site.visible) {
    if (ProvablyNotNegative(condition.Lower())) continue;
    const auto term = condition.terms().find(site.n->key);
    const auto sign =
        term == condition.terms().end() ? std::nullopt : term->second.second.constant();
    std::optional<IndexForm>* bound = sign == -1 ? &range.last : sign == 1 ? &range.first : nullptr;
    if (!bound || *bound) {
      return Refused("the condition ", condition.Key(), " >= 0 is no bound of a range");
    }
    *bound = sign == -1 ? condition + n : n - condition;
  }
  return range;
}

class DenseLogitsPorts {
 public:
  DenseLogitsPorts(GraphBuilder& builder, const LogitsSite& site)
      : builder_(builder), site_(site), arranger_(builder, Sources(site)) {}

  absl::StatusOr<Value*> Build() {
    if (site_.key_factors.size() != 1) return Refused("keys have no scale, or more than one");
    PF_ASSIGN_OR_RETURN(const AxisAtoms rows, RowsOfLogits(site_));
    if (rows.size() != 1) return Refused("a row of queries is no single axis");
    PF_ASSIGN_OR_RETURN(Value * q, arranger_.Gathered(site_.query, {rows, {site_.h}, {site_.d}}));
    PF_ASSIGN_OR_RETURN(Value * k, arranger_.Gathered(site_.key, {{site_.n}, {site_.d}}));
    PF_ASSIGN_OR_RETURN(Value * scale, arranger_.Gathered(site_.key_factors[0], {{site_.n}}));
    PF_ASSIGN_OR_RETURN(Value * weights, WeightsOfLogits(builder_, arranger_, site_));
    PF_ASSIGN_OR_RETURN(const Range range, RangeOf(site_));
    const IndexForm first = range.first ? *range.first : IndexForm(0);
    const IndexForm end = range.last ? *range.last + IndexForm(1) : IndexForm(site_.n->extent);
    PF_ASSIGN_OR_RETURN(Value * ks, Bound(WithinColumns(first, site_.n), rows[0]));
    PF_ASSIGN_OR_RETURN(Value * ke, Bound(WithinColumns(end, site_.n), rows[0]));
    Node* node = builder_.AddNode("pagefuse", "MqaLogits", {q, k, scale, weights, ks, ke}, 1);
    node->SetAttribute("clean_logits", MakeAttribute(int64_t{1}));
    return arranger_.Spread(node->output(0), {rows, {site_.n}}, site_.output);
  }

 private:
  static std::vector<Value*> Sources(const LogitsSite& site) {
    std::vector<Value*> sources = {site.query.value, site.key.value};
    for (const Element& factor : site.row_factors) sources.push_back(factor.value);
    return sources;
  }

  absl::StatusOr<Value*> Bound(const IndexForm& form, const AtomPtr& row) {
    // An input as it is, whatever its type.
    if (const AtomPtr atom = form.atom(); atom && atom->kind == IndexAtom::Kind::kLoad) {
      PF_ASSIGN_OR_RETURN(Value * value, arranger_.Gathered({atom->tensor, atom->args}, {{row}}));
      return arranger_.AsInt32(value);
    }
    PF_ASSIGN_OR_RETURN(Value * value, IndexVector(builder_, arranger_, form, row));
    return arranger_.AsInt32(value);
  }

  GraphBuilder& builder_;
  const LogitsSite& site_;
  Arranger arranger_;
};

// The length of the fast digit of `m`, where its slow one is read.
std::optional<Dim> FastDigit(const IndexForm& form, const AtomPtr& m) {
  for (const auto& [key, term] : form.terms()) {
    const IndexAtom& atom = *term.first;
    if (atom.kind == IndexAtom::Kind::kDiv && atom.args[0].Key() == m->key) return atom.divisor;
    for (const IndexForm& arg : atom.args) {
      if (const auto digit = FastDigit(arg, m)) return digit;
    }
  }
  return std::nullopt;
}

// The length of the digit of rows that a sequence has, where the keys say so.
std::optional<Dim> RowsOfSequence(const LogitsSite& site) {
  const AtomPtr m = site.output.at.size() == 2 ? site.output.at[0].atom() : nullptr;
  if (!m) return std::nullopt;
  for (const IndexForm& at : site.key.at) {
    if (const auto digit = FastDigit(at, m)) return digit;
  }
  return std::nullopt;
}

absl::StatusOr<std::vector<Value*>> Build(GraphBuilder& builder, ElementReader& reader,
                                          const LogitsSite& site) {
  PF_ASSIGN_OR_RETURN(Value * result, IsPaged(site) ? BuildPagedLogits(builder, reader, site)
                                                    : DenseLogitsPorts(builder, site).Build());
  return std::vector<Value*>{result};
}

std::vector<Node*> Places(const Graph& graph) {
  std::vector<Node*> nodes = NodesOf(graph);
  std::erase_if(nodes, [](const Node* node) {
    const Node* last = node->Is("Transpose") ? node->input(0)->producer() : node;
    const bool masks = last && (last->Is("Where") || last->Is("Add"));
    return !masks || node->output(0)->dtype() != DataType::kFloat;
  });
  return nodes;
}

absl::Status Fuse(Node& node, const GraphScope& scope, PassContext& context) {
  Value* output = node.output(0);
  ElementReader whole(context.contents);
  PF_ASSIGN_OR_RETURN(LogitsSite site, ReadLogits(whole, output, {}));
  if (!IsPaged(site)) PF_RETURN_IF_ERROR(CheckCodes(site));
  ElementReader split(context.contents);
  ElementReader* reader = &whole;
  if (const auto fast = RowsOfSequence(site)) {
    const Dim slow = site.output.at[0].atom()->extent.FloorDiv(*fast);
    const IndexForm rows =
        IndexForm::Of(split.NewAxis(slow)).Times(*fast) + IndexForm::Of(split.NewAxis(*fast));
    PF_ASSIGN_OR_RETURN(site, ReadLogits(split, output, {rows}));
    reader = &split;
  }
  PF_RETURN_IF_ERROR(ServesOnly(*reader, {output}));
  Replacement replacement(*scope.graph, *output, kName);
  return replacement.Finish(Build(replacement.builder(), *reader, site), {output}, *scope.opsets,
                            context.contents);
}

}  // namespace

std::unique_ptr<Pass> FuseIndexLogits() {
  return MakeSitePass(
      kName, "Fuses an indexer's scores over dense keys or a paged cache, read by element.", Places,
      Fuse);
}

}  // namespace pagefuse
