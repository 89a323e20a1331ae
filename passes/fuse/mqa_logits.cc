// fuse-index-logits: rectified scores of an indexer, over dense keys or a paged cache of bytes,
// become MqaLogits or PagedMqaLogits. The scores are read by element (logits_site.h).
#include <algorithm>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/passes/fuse/fuse.h"
#include "pagefuse/passes/fuse/site_pass.h"
#include "pagefuse/passes/words/byte_rows.h"
#include "pagefuse/passes/words/index_tensor.h"
#include "pagefuse/passes/words/logits_site.h"
#include "pagefuse/passes/words/replacement.h"

namespace pagefuse {
namespace {

constexpr const char* kName = "fuse-index-logits";
constexpr int64_t kScaleBytes = 4;

absl::Status Refused(std::string_view why) {
  return absl::FailedPreconditionError({why.data(), why.size()});
}

bool IsE4m3(const Value& value) {
  return value.dtype() == DataType::kFloat8E4M3FN || value.dtype() == DataType::kUint8;
}

// Bounds of the keys that a row sees: first <= n <= last.
struct Range {
  std::optional<IndexForm> first, last;
};
absl::StatusOr<Range> RangeOf(const LogitsSite& site) {
  Range range;
  const IndexForm n = IndexForm::Of(site.n);
  for (const IndexForm& condition : site.visible) {
    const Dim least = condition.Lower();
    if (least.known() && ProvablyNotNegative(least)) continue;
    const auto term = condition.terms().find(site.n->key);
    const auto sign =
        term == condition.terms().end() ? std::nullopt : term->second.second.constant();
    std::optional<IndexForm>* bound = sign == -1 ? &range.last : sign == 1 ? &range.first : nullptr;
    if (!bound || *bound) {
      return Refused(StrCat("the condition ", condition.Key(), " >= 0 is no bound of a range"));
    }
    *bound = sign == -1 ? condition + n : n - condition;
  }
  return range;
}

// The table entry through which keys are read, if they are.
AtomPtr BlockOf(const LogitsSite& site) {
  for (const IndexForm& at : site.key.at) {
    for (const auto& [key, term] : at.terms()) {
      if (term.first->kind == IndexAtom::Kind::kLoad) return term.first;
    }
  }
  return nullptr;
}

class LogitsPorts {
 public:
  LogitsPorts(Replacement& replacement, const LogitsSite& site, ElementReader& reader)
      : builder_(replacement.builder()),
        site_(site),
        reader_(reader),
        arranger_(builder_, Sources(site)) {}

  absl::StatusOr<std::vector<Value*>> Build() {
    if (!IsE4m3(*site_.query.value) || !IsE4m3(*site_.key.value)) {
      return Refused("queries and keys are no float8e4m3fn codes");
    }
    if (site_.key_factors.size() != 1) return Refused("keys have no scale, or more than one");
    const AtomPtr block = BlockOf(site_);
    PF_ASSIGN_OR_RETURN(Value * result, block ? BuildPaged(block) : BuildDense());
    return std::vector<Value*>{result};
  }

 private:
  static std::vector<Value*> Sources(const LogitsSite& site) {
    std::vector<Value*> sources = {site.query.value, site.key.value};
    for (const Element& factor : site.row_factors) sources.push_back(factor.value);
    return sources;
  }

  AxisAtoms Rows() const {
    const absl::StatusOr<Digits> digits =
        DigitsOf(site_.output.at[0], (*site_.output.value->shape())[0]);
    return digits.ok() ? digits->atoms : AxisAtoms{};
  }

  // Factors of rows and heads, as one tensor.
  absl::StatusOr<Value*> Weights() {
    Value* weights = nullptr;
    for (const Element& factor : site_.row_factors) {
      PF_ASSIGN_OR_RETURN(Value * here, arranger_.Gathered(factor, {Rows(), {site_.h}}));
      weights = weights ? builder_.Add("Mul", {weights, here}) : here;
    }
    if (!weights) return Refused("there are no weights of heads");
    const auto number = static_cast<float>(site_.number);
    if (number == 1) return weights;
    return builder_.Add("Mul", {weights, builder_.Float(number)});
  }

  absl::StatusOr<Value*> BuildDense() {
    const AxisAtoms rows = Rows();
    if (rows.size() != 1) return Refused("a row of queries is no single axis");
    PF_ASSIGN_OR_RETURN(Value * q, arranger_.Gathered(site_.query, {rows, {site_.h}, {site_.d}}));
    PF_ASSIGN_OR_RETURN(Value * k, arranger_.Gathered(site_.key, {{site_.n}, {site_.d}}));
    PF_ASSIGN_OR_RETURN(Value * scale, arranger_.Gathered(site_.key_factors[0], {{site_.n}}));
    PF_ASSIGN_OR_RETURN(Value * weights, Weights());
    PF_ASSIGN_OR_RETURN(const Range range, RangeOf(site_));
    const IndexForm first = range.first ? *range.first : IndexForm(0);
    const IndexForm end = range.last ? *range.last + IndexForm(1) : IndexForm(site_.n->extent);
    PF_ASSIGN_OR_RETURN(Value * ks, Bound(first, rows[0]));
    PF_ASSIGN_OR_RETURN(Value * ke, Bound(end, rows[0]));
    Node* node = builder_.AddNode("pagefuse", "MqaLogits", {q, k, scale, weights, ks, ke}, 1);
    node->SetAttribute("clean_logits", MakeAttribute(int64_t{1}));
    return arranger_.Spread(node->output(0), {rows, {site_.n}}, site_.output);
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

  // --- paged ---

  absl::StatusOr<Value*> BuildPaged(const AtomPtr& block) {
    const AxisAtoms rows = Rows();
    AtomPtr sequence;
    AtomPtr query;  // rows of one sequence
    for (const AtomPtr& atom : rows) {
      const bool owns = block->args.front().Mentions(atom->key);
      (owns ? sequence : query) = atom;
    }
    if (!sequence || rows.front() != sequence || rows.size() > 2) {
      return Refused("the table is not read by sequence");
    }
    PF_ASSIGN_OR_RETURN(const Dim block_size, CheckLayout(block));
    AxisAtoms queries;
    if (query) queries.push_back(query);
    PF_ASSIGN_OR_RETURN(
        Value * q, arranger_.Gathered(site_.query, {{sequence}, queries, {site_.h}, {site_.d}}));
    PF_ASSIGN_OR_RETURN(Value * weights, Weights());
    PF_ASSIGN_OR_RETURN(const IndexForm length, Length(query));
    PF_ASSIGN_OR_RETURN(Value * lengths, Bound(length, sequence));
    PF_ASSIGN_OR_RETURN(Value * table, Table(*block, sequence));
    Value* cache = builder_.Add(
        "Reshape", {site_.key.value, builder_.Ints({-1, *block_size.constant(), 1,
                                                    *site_.d->extent.constant() + kScaleBytes})});
    Node* node =
        builder_.AddNode("pagefuse", "PagedMqaLogits", {q, cache, weights, lengths, table}, 1);
    node->SetAttribute("clean_logits", MakeAttribute(int64_t{1}));
    return arranger_.Spread(node->output(0), {rows, {site_.n}}, site_.output);
  }

  absl::StatusOr<Value*> Table(const IndexAtom& block, const AtomPtr& sequence) {
    AtomPtr column;
    for (const IndexForm& arg : block.args) {
      for (const auto& [key, term] : arg.terms()) {
        if (IndexForm::Of(term.first).Mentions(site_.n->key)) column = term.first;
      }
    }
    if (!column) return Refused("the table is not read by position");
    PF_ASSIGN_OR_RETURN(Value * table,
                        arranger_.Gathered({block.tensor, block.args}, {{sequence}, {column}}));
    return arranger_.AsInt32(table);
  }

  // Keys a sequence has: a row sees all but those after it.
  absl::StatusOr<IndexForm> Length(const AtomPtr& query) {
    PF_ASSIGN_OR_RETURN(const Range range, RangeOf(site_));
    if (range.first || !range.last) return Refused("rows do not see all keys up to their own");
    if (!query) return *range.last + IndexForm(1);
    const IndexForm length = *range.last - IndexForm::Of(query) + IndexForm(query->extent);
    if (length.Mentions(query->key)) return Refused("rows do not advance by one key each");
    return length;
  }

  // A block holds the codes of all its keys, then their scales: its size.
  absl::StatusOr<Dim> CheckLayout(const AtomPtr& block) {
    const auto head_size = site_.d->extent.constant();
    const auto scale = BytesOf(reader_, site_.key_factors[0]);
    const auto codes = AddressOf(site_.key);
    if (!head_size || !codes || !scale || scale->bytes != site_.key.value || scale->count != 4) {
      return Refused("keys and scales do not lie as bytes in one cache");
    }
    const auto step = codes->terms().find(block->key);
    const auto block_bytes =
        step == codes->terms().end() ? std::nullopt : step->second.second.constant();
    if (!block_bytes || *block_bytes % (*head_size + kScaleBytes) != 0) {
      return Refused("a block of the cache holds no whole number of keys");
    }
    const Dim size(*block_bytes / (*head_size + kScaleBytes));
    const IndexForm row = DivMod(IndexForm::Of(site_.n), size).second;
    const IndexForm begin = IndexForm::Of(block).Times(Dim(*block_bytes));
    const IndexForm code = begin + row.Times(Dim(*head_size)) + IndexForm::Of(site_.d);
    const IndexForm first = begin + IndexForm(size * Dim(*head_size)) + row.Times(Dim(kScaleBytes));
    if (code.Key() != codes->Key()) {
      return Refused(StrCat("codes lie at ", codes->Key(), ", expected ", code.Key()));
    }
    if (first.Key() != scale->first.Key()) {
      return Refused(StrCat("scales lie at ", scale->first.Key(), ", expected ", first.Key()));
    }
    return size;
  }

  GraphBuilder& builder_;
  const LogitsSite& site_;
  ElementReader& reader_;
  Arranger arranger_;
};

// The length of the digit of rows that a sequence has, where the keys say so.
std::optional<Dim> RowsOfSequence(const LogitsSite& site) {
  const AtomPtr m = site.output.at[0].atom();
  const AtomPtr block = BlockOf(site);
  if (!m || !block) return std::nullopt;
  for (const IndexForm& arg : block->args) {
    for (const auto& [key, term] : arg.terms()) {
      const AtomPtr& atom = term.first;
      if (atom->kind == IndexAtom::Kind::kDiv && atom->args[0].Key() == m->key) {
        return atom->divisor;
      }
    }
  }
  return std::nullopt;
}

class FuseIndexLogitsPass : public SitePass {
 public:
  std::string_view name() const override { return kName; }
  std::string_view description() const override {
    return "Fuses an indexer's scores over dense keys or a paged cache, read by element.";
  }

 private:
  std::vector<Node*> Places(const Graph& graph) const override {
    std::vector<Node*> nodes = NodesOf(graph);
    std::erase_if(nodes, [](const Node* node) {
      return !node->Is("Where") || node->output(0)->dtype() != DataType::kFloat;
    });
    return nodes;
  }

  absl::Status Fuse(Node& node, const GraphScope& scope, PassContext& context) const override {
    Value* output = node.output(0);
    ElementReader whole(context.contents);
    PF_ASSIGN_OR_RETURN(LogitsSite site, ReadLogits(whole, output, {}));
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
    return replacement.Finish(LogitsPorts(replacement, site, *reader).Build(), {output},
                              *scope.opsets, context.contents);
  }
};

}  // namespace

std::unique_ptr<Pass> FuseIndexLogits() { return std::make_unique<FuseIndexLogitsPass>(); }

}  // namespace pagefuse
