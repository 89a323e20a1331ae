// fuse-indexer-topk: the best columns of each row of scores within its range, counted from the
// range's begin, become IndexerTopK.
//
//   values, place = TopK (logits that are -inf outside [ks, ke), K)
//   indices = Where (k < ke - ks, place - ks, -1)
//     =>  indices = IndexerTopK <topk = K> (logits, ks, ke)
#include <cmath>
#include <optional>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/passes/fuse/fuse.h"
#include "pagefuse/passes/fuse/site_pass.h"
#include "pagefuse/passes/ports.h"
#include "pagefuse/passes/refused.h"
#include "pagefuse/passes/words/index_tensor.h"
#include "pagefuse/passes/words/replacement.h"

namespace pagefuse {
namespace {

constexpr const char* kName = "fuse-indexer-topk";

using Kind = IndexAtom::Kind;

struct TopKSite {
  Element output;
  AtomPtr row, rank;
  AtomPtr column;
  const Node* topk = nullptr;
  IndexForm begin, end;  // of the columns that a row has
};

class TopKReader {
 public:
  TopKReader(ElementReader& reader, Value* output) : reader_(reader), output_(output) {}

  absl::StatusOr<TopKSite> Read() {
    PF_ASSIGN_OR_RETURN(site_.output, reader_.Whole(output_));
    if (site_.output.at.size() != 2) return absl::NotFoundError("no matrix");
    site_.row = site_.output.at[0].atom();
    site_.rank = site_.output.at[1].atom();
    if (!site_.row || !site_.rank) return absl::NotFoundError("one row or one rank");
    const auto chosen = reader_.Number(reader_.Operand(site_.output, 1));
    const auto other = reader_.Number(reader_.Operand(site_.output, 2));
    const bool keeps = other == -1;
    if (!keeps && chosen != -1) return absl::NotFoundError("nothing is marked by -1");
    PF_RETURN_IF_ERROR(ReadPlace(reader_.ReadIndex(reader_.Operand(site_.output, keeps ? 1 : 2))));
    PF_RETURN_IF_ERROR(ReadColumns());
    PF_RETURN_IF_ERROR(ReadGiven(reader_.Operand(site_.output, 0), keeps));
    return site_;
  }

 private:
  // place[row, rank] - begin
  absl::Status ReadPlace(const IndexForm& form) {
    for (const auto& [key, term] : form.terms()) {
      const AtomPtr& atom = term.first;
      const Node* node = atom->kind == Kind::kLoad ? atom->tensor->producer() : nullptr;
      if (!node || !node->Is("TopK") || atom->tensor->producer_index() != 1) continue;
      if (!IsOwnEntry(atom->args)) {
        return Refused("an entry is another rank, or of another row, than TopK gave it");
      }
      site_.topk = node;
      offset_ = IndexForm::Of(atom) - form;
    }
    if (!site_.topk) return absl::NotFoundError("no places of TopK");
    const auto& shape = site_.topk->input(0)->shape();
    const bool last =
        shape && shape->rank() == 2 && NormalAxis(IntOr(*site_.topk, "axis", -1), 2) == 1;
    if (!last || IntOr(*site_.topk, "largest", 1) != 1 || IntOr(*site_.topk, "sorted", 1) != 1) {
      return Refused("TopK does not take the largest of each row in order");
    }
    reader_.Visit(*site_.topk);
    return absl::OkStatus();
  }

  bool IsOwnEntry(const std::vector<IndexForm>& at) const {
    return at.size() == 2 && at[0].Key() == IndexForm::Of(site_.row).Key() &&
           at[1].Key() == IndexForm::Of(site_.rank).Key();
  }

  // The range outside of which scores are hidden.
  absl::Status ReadColumns() {
    const AtomPtr column = reader_.NewAxis((*site_.topk->input(0)->shape())[1]);
    site_.column = column;
    const Element logits =
        reader_.Source({site_.topk->input(0), {IndexForm::Of(site_.row), IndexForm::Of(column)}});
    const Node* node = logits.producer();
    if (node && node->Is("MqaLogits", "pagefuse")) {
      site_.begin = reader_.ReadIndex({node->input(ports::MqaLogits::kBegin), {logits.at[0]}});
      site_.end = reader_.ReadIndex({node->input(ports::MqaLogits::kEnd), {logits.at[0]}});
      return absl::OkStatus();
    }
    if (node && node->Is("PagedMqaLogits", "pagefuse")) return ReadPaged(*node, logits.at[0]);
    if (node && node->Is("Where")) return ReadMasked(logits, column);
    if (node && node->Is("Add")) return ReadAdded(logits, column);
    return Refused("the scores are not hidden outside a range of columns");
  }

  absl::Status ReadPaged(const Node& node, const IndexForm& row) {
    const auto& shape = node.input(0)->shape();
    if (!shape || shape->rank() != 4) return Refused("the queries' shape is not known");
    const auto [sequence, query] = DivMod(row, (*shape)[1]);
    const IndexForm length =
        reader_.ReadIndex({node.input(ports::PagedMqaLogits::kLengths), {sequence}});
    site_.begin = IndexForm(0);
    site_.end = length - IndexForm((*shape)[1]) + query + IndexForm(1);
    return absl::OkStatus();
  }

  absl::Status ReadMasked(const Element& logits, const AtomPtr& column) {
    const auto chosen = reader_.Number(reader_.Operand(logits, 1));
    const auto other = reader_.Number(reader_.Operand(logits, 2));
    const bool keeps = other && HidesScore(*other);
    if (!keeps && !(chosen && HidesScore(*chosen))) return Refused("no column is hidden");
    const Element condition = reader_.Operand(logits, 0);
    PF_ASSIGN_OR_RETURN(const Conditions conditions, keeps ? reader_.ReadConditions(condition)
                                                           : reader_.ReadNegation(condition));
    return SetBounds(conditions, column);
  }

  // Scores and a mask of 0 and the lowest.
  absl::Status ReadAdded(const Element& logits, const AtomPtr& column) {
    for (int side : {1, 0}) {
      const auto seen = reader_.ReadHiding(reader_.Operand(logits, side));
      if (seen.ok() && !seen->empty()) return SetBounds(*seen, column);
    }
    return Refused("what is added to the scores hides no range of columns");
  }

  absl::Status SetBounds(const Conditions& conditions, const AtomPtr& column) {
    site_.begin = IndexForm(0);
    site_.end = IndexForm(column->extent);
    const IndexForm n = IndexForm::Of(column);
    for (const IndexForm& bound : conditions) {
      const auto term = bound.terms().find(column->key);
      const auto sign = term == bound.terms().end() ? std::nullopt : term->second.second.constant();
      if (sign == 1) {
        site_.begin = n - bound;
      } else if (sign == -1) {
        site_.end = bound + n + IndexForm(1);
      } else {
        return Refused("the condition ", bound.Key(), " >= 0 is no bound of columns");
      }
    }
    return absl::OkStatus();
  }

  // rank < end - begin, or that the value is no hidden one.
  absl::Status ReadGiven(const Element& condition, bool keeps) {
    if (offset_.Key() != site_.begin.Key()) {
      return Refused("places are counted from ", offset_.Key(), ", columns begin at ",
                     site_.begin.Key());
    }
    if (const auto hidden = TrueOfHidden(condition)) {
      if (*hidden != keeps) return absl::OkStatus();
      return Refused("entries are given where the value is a hidden one");
    }
    PF_ASSIGN_OR_RETURN(const Conditions given, keeps ? reader_.ReadConditions(condition)
                                                      : reader_.ReadNegation(condition));
    const IndexForm expected = site_.end - site_.begin - IndexForm(1) - IndexForm::Of(site_.rank);
    if (given.size() == 1 && given[0].Key() == expected.Key()) return absl::OkStatus();
    return Refused("entries are given where ", given.empty() ? "always" : given[0].Key(),
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
    if (values.value != site_.topk->output(0) || !IsOwnEntry(values.at)) return std::nullopt;
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

  ElementReader& reader_;
  Value* output_;
  TopKSite site_;
  IndexForm offset_;
};

absl::StatusOr<std::vector<Value*>> Build(Replacement& replacement, const TopKSite& site) {
  GraphBuilder& builder = replacement.builder();
  Value* logits = site.topk->input(0);
  const auto count = site.rank->extent.constant();
  if (!count) return Refused("the number of indices a row is not known");
  Arranger arranger(builder, {logits});
  PF_ASSIGN_OR_RETURN(Value * begin, IndexVector(builder, arranger, site.begin, site.row));
  PF_ASSIGN_OR_RETURN(
      Value * end, IndexVector(builder, arranger, WithinColumns(site.end, site.column), site.row));
  Node* node = builder.AddNode("pagefuse", "IndexerTopK",
                               {logits, arranger.AsInt32(begin), arranger.AsInt32(end)}, 1);
  node->SetAttribute("topk", MakeAttribute(*count));
  const DataType type = site.output.value->dtype();
  if (type == DataType::kInt32) return std::vector<Value*>{node->output(0)};
  return std::vector<Value*>{
      builder.Add("Cast", {node->output(0)}, "to", static_cast<int64_t>(type))};
}

absl::Status Fuse(Node& node, const GraphScope& scope, PassContext& context) {
  Value* output = node.output(0);
  ElementReader reader(context.contents);
  PF_ASSIGN_OR_RETURN(const TopKSite site, TopKReader(reader, output).Read());
  const auto& values = site.topk->output(0);
  const bool values_read = values && (values->is_output() || !values->uses().empty());
  // The values themselves may have been compared; the op has no such output.
  if (values_read && values->is_output()) return Refused("the values of TopK are a graph output");
  Replacement replacement(*scope.graph, *output, kName);
  return replacement.Finish(Build(replacement, site), {output}, *scope.opsets, context.contents);
}

}  // namespace

std::unique_ptr<Pass> FuseIndexerTopK() {
  return MakeSitePass(kName, "Fuses the selection of the best columns within each row's range.",
                      IntegerChoices, Fuse);
}

}  // namespace pagefuse
