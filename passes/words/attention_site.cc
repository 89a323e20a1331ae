#include "pagefuse/passes/words/attention_site.h"

#include <algorithm>
#include <cmath>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/passes/pattern.h"
#include "pagefuse/passes/ports.h"
#include "pagefuse/passes/words/written_softmax.h"

namespace pagefuse {
namespace {

using ports::Attention;

absl::Status Refused(const Element& element, std::string_view why) {
  return absl::FailedPreconditionError(StrCat("\"", element.value->name(), "\": ", why));
}

bool NearlyEqual(double a, double b) { return std::abs(a - b) <= 1e-6 * std::abs(b); }

class SiteReader {
 public:
  SiteReader(ElementReader& reader, Value* output) : reader_(reader), output_(output) {}

  absl::StatusOr<AttentionSite> Read(const AxisSplits& splits) {
    PF_ASSIGN_OR_RETURN(site_.output, reader_.Whole(output_));
    for (const auto& [axis, fast] : splits) Split(axis, fast);
    if (site_.output.From("Attention")) {
      PF_RETURN_IF_ERROR(ReadOp());
    } else {
      PF_RETURN_IF_ERROR(ReadSum());
    }
    return std::move(site_);
  }

 private:
  void Split(int axis, const Dim& fast) {
    const Dim length = (*output_->shape())[axis];
    const AtomPtr slow = reader_.NewAxis(length.FloorDiv(fast));
    const AtomPtr quick = reader_.NewAxis(fast);
    site_.output.at[axis] = IndexForm::Of(slow).Times(fast) + IndexForm::Of(quick);
  }

  // --- written out ---

  absl::Status ReadSum() {
    ReadResult();
    const auto product = ProductOf(reader_, sum_of_products_);
    if (!product) return absl::NotFoundError("no sum of products");
    // Probabilities may stand on either side.
    for (const bool left : {true, false}) {
      Conditions kept;
      const auto side = Kept(left ? product->left : product->right, kept);
      if (!side.ok()) continue;
      const Factors weights = FactorsOf(reader_, *side);
      for (size_t i = 0; i < weights.others.size(); ++i) {
        const std::optional<Element> scores = ScoresOf(weights.others[i], product->summed);
        if (!scores) continue;
        site_.n = product->summed;
        PF_ASSIGN_OR_RETURN(const Element value, Kept(left ? product->right : product->left, kept));
        site_.value = FactorsOf(reader_, value);
        AddFactors(weights, i, site_.value);
        PF_RETURN_IF_ERROR(SetValueAxis());
        PF_RETURN_IF_ERROR(ReadScores(*scores));
        PF_RETURN_IF_ERROR(CheckKept(kept_keys_));
        return CheckKept(kept);
      }
    }
    return absl::NotFoundError("no softmax among the factors");
  }

  // The sum of products behind what a result may be: divided by the sum of the powers, 0 in rows
  // that see no key.
  void ReadResult() {
    Element result = reader_.Source(site_.output);
    if (result.From("Where")) {
      for (int side : {1, 2}) {
        if (reader_.Number(reader_.Operand(result, side)) != 0.0) continue;
        guard_ = reader_.Operand(result, 0);
        guard_keeps_ = side == 2;
        result = reader_.Operand(result, 3 - side);
        break;
      }
    }
    if (result.From("Div") && ReadSinkBehind(reader_.Operand(result, 1))) {
      result = reader_.Operand(result, 0);
    }
    if (result.From("Div") && !reader_.Number(reader_.Operand(result, 1))) {
      divisor_ = reader_.Operand(result, 1);
      result = reader_.Operand(result, 0);
    }
    sum_of_products_ = result;
  }

  // 1 + exp(sink - log sum): a sum without its sink, divided by that, is one with it.
  bool ReadSinkBehind(const Element& divisor) {
    if (!divisor.From("Add")) return false;
    for (int side : {0, 1}) {
      const Element power = reader_.Operand(divisor, 1 - side);
      if (reader_.Number(reader_.Operand(divisor, side)) != 1.0 || !power.From("Exp")) continue;
      const Element difference = reader_.Operand(power, 0);
      if (!difference.From("Sub")) continue;
      sink_ = reader_.Operand(difference, 0);
      sink_logsum_ = reader_.Operand(difference, 1);
      return true;
    }
    return false;
  }

  // x of Where (condition, x, 0): weights, keys or values that are 0 where their key is hidden.
  absl::StatusOr<Element> Kept(const Element& element, Conditions& kept) {
    const Element source = reader_.Source(element);
    if (!source.From("Where")) return element;
    for (int side : {1, 2}) {
      if (reader_.Number(reader_.Operand(source, side)) != 0.0) continue;
      const Element condition = reader_.Operand(source, 0);
      // As ScoresOf takes it.
      if (condition.From("IsNaN")) return element;
      PF_ASSIGN_OR_RETURN(const Conditions conditions, side == 2 ? reader_.ReadConditions(condition)
                                                                 : reader_.ReadNegation(condition));
      kept.insert(kept.end(), conditions.begin(), conditions.end());
      return reader_.Operand(source, 3 - side);
    }
    return element;
  }

  // Nothing is hidden from the sum of products that the softmax sees.
  absl::Status CheckKept(const Conditions& kept) const {
    for (const IndexForm& condition : kept) {
      const bool seen =
          std::any_of(site_.visible.begin(), site_.visible.end(),
                      [&](const IndexForm& visible) { return visible.Key() == condition.Key(); });
      if (!seen) {
        return Refused(site_.output, StrCat("weights, keys or values are 0 but where ",
                                            condition.Key(), " >= 0, which the scores do not say"));
      }
    }
    return absl::OkStatus();
  }

  static void AddFactors(const Factors& from, size_t except, Factors& to) {
    to.number *= from.number;
    for (size_t i = 0; i < from.others.size(); ++i) {
      if (i != except) to.others.push_back(from.others[i]);
    }
  }

  // The axis of the output that runs along a value, the last one.
  absl::Status SetValueAxis() {
    site_.d = site_.output.at.back().atom();
    if (site_.d) return absl::OkStatus();
    return Refused(site_.output, "its last axis is no axis of values");
  }

  // The scores whose softmax over `n` the element is.
  std::optional<Element> ScoresOf(const Element& element, const AtomPtr& n) {
    // 0 where all keys are hidden.
    if (element.From("Where")) {
      const auto zero = reader_.Number(reader_.Operand(element, 1));
      const Element broken = reader_.Operand(element, 0);
      if (!zero || *zero != 0 || !broken.From("IsNaN")) return std::nullopt;
      (void)reader_.Operand(broken, 0);
      return ScoresOf(reader_.Operand(element, 2), n);
    }
    if (element.From("Exp")) return divisor_ ? OfPowers(element, *divisor_, n) : std::nullopt;
    if (divisor_) return std::nullopt;
    if (element.From("Softmax")) return guard_ || sink_ ? std::nullopt : OfSoftmax(element, n);
    if (!element.From("Div")) return std::nullopt;
    return OfPowers(reader_.Operand(element, 0), reader_.Operand(element, 1), n);
  }

  std::optional<Element> OfSoftmax(const Element& element, const AtomPtr& n) {
    const int rank = static_cast<int>(element.at.size());
    const auto axis = NormalAxis(IntOr(*element.producer(), "axis", -1), rank);
    if (!element.at[axis].Mentions(n->key)) return std::nullopt;
    softmax_axis_ = static_cast<int>(axis);
    return SameElement(element);
  }

  // exp(x - max x) / sum exp(x - max x).
  std::optional<Element> OfPowers(const Element& power, const Element& sum, const AtomPtr& n) {
    const auto softmax = std::make_shared<WrittenSoftmax>(reader_);
    if (!softmax->ReadPower(power, n) || !softmax->ReadSum(sum)) return std::nullopt;
    if (guard_) {
      const bool zero = guard_keeps_ ? softmax->IsFullRow(*guard_) : softmax->IsEmptyRow(*guard_);
      if (!zero) return std::nullopt;
    }
    softmax_axis_ = softmax->axis();
    site_.sink = softmax->sink();
    if (sink_) {
      WrittenSoftmax sums = *softmax;
      if (site_.sink || !sums.ReadLogSum(sink_logsum_)) return std::nullopt;
      site_.sink = sink_;
    }
    site_.softmax = softmax;
    return softmax->scores();
  }

  // The first operand, not yet followed to where it comes from: a sink may have been joined to it.
  std::optional<Element> SameElement(const Element& element) {
    (void)reader_.Operand(element, 0);
    return Element{element.producer()->input(0), element.at};
  }

  // Softmax(Concat(scores, sink)), of which the columns of the scores were taken.
  absl::Status ReadScores(Element scores) {
    const Element source = reader_.Source(scores);
    Element whole = scores;
    while (whole.producer() && whole.producer() != source.producer() && !whole.From("Concat")) {
      whole = reader_.OneStep(whole);
    }
    if (whole.From("Concat")) {
      PF_RETURN_IF_ERROR(ReadSink(whole, source));
    } else if (!CoversKeys(scores)) {
      return Refused(scores, "a part of the probabilities is cut away that is no sink");
    }
    return ReadMasked(source, /*inside_cap=*/false);
  }

  bool CoversKeys(const Element& scores) const {
    const auto& shape = scores.value->shape();
    const AtomPtr key = scores.at[softmax_axis_].atom();
    return shape && key && (ProvablyEqual((*shape)[softmax_axis_], key->extent));
  }

  absl::Status ReadSink(const Element& joined, const Element& source) {
    const Node& concat = *joined.producer();
    const int rank = static_cast<int>(joined.at.size());
    const auto axis = NormalAxis(IntOr(concat, "axis", 0), rank);
    if (concat.num_inputs() != 2) return Refused(joined, "joins more than scores and a sink");
    const Element scores = reader_.OneStep(joined);
    for (Value* part : concat.inputs()) {
      if (part == scores.value) continue;
      if (!part->shape() || (*part->shape())[static_cast<int>(axis)].constant() != 1) {
        return Refused(joined, "joins more than one column to the scores");
      }
      Element sink{part, joined.at};
      sink.at[axis] = IndexForm();
      site_.sink = reader_.Source(sink);
    }
    (void)source;
    if (!site_.sink) return Refused(joined, "joins scores with themselves");
    return absl::OkStatus();
  }

  // mask (softcap (scale * product)), the mask outermost.
  absl::Status ReadMasked(const Element& scores, bool inside_cap) {
    if (scores.From("Where") || scores.From("Add") || scores.From("Sub")) {
      if (inside_cap) return Refused(scores, "the soft cap comes after the mask");
      return scores.From("Where") ? ReadWhere(scores) : ReadAdded(scores);
    }
    if (scores.From("Cast") && KeepsNumbers(*scores.producer()))
      return ReadMasked(reader_.Operand(scores, 0), inside_cap);
    if (inside_cap || !IsCapped(scores)) return ReadProduct(scores);
    return ReadCapped(scores);
  }

  absl::Status ReadWhere(const Element& scores) {
    const auto chosen = reader_.Number(reader_.Operand(scores, 1));
    const auto other = reader_.Number(reader_.Operand(scores, 2));
    if (!(other && HidesScore(*other)) && !(chosen && HidesScore(*chosen))) {
      return Refused(scores, "chooses between scores and a number that hides nothing");
    }
    const bool keeps = other.has_value();
    const Element condition = reader_.Operand(scores, 0);
    PF_ASSIGN_OR_RETURN(const Conditions conditions, keeps ? reader_.ReadConditions(condition)
                                                           : reader_.ReadNegation(condition));
    AddVisible(conditions);
    return ReadMasked(reader_.Operand(scores, keeps ? 1 : 2), false);
  }

  absl::Status ReadAdded(const Element& scores) {
    absl::Status why = absl::OkStatus();
    for (int side : {1, 0}) {
      if (scores.From("Sub")) break;
      const auto hidden = reader_.ReadHiding(reader_.Operand(scores, side));
      if (!hidden.ok()) {
        if (why.ok()) why = hidden.status();
        continue;
      }
      AddVisible(*hidden);
      return ReadMasked(reader_.Operand(scores, 1 - side), false);
    }
    return ReadBiased(scores, why);
  }

  // Scores and what is added to them, in either order.
  absl::Status ReadBiased(const Element& scores, const absl::Status& no_mask) {
    const bool subtracts = scores.From("Sub");
    absl::Status why = no_mask;
    for (int side : {1, 0}) {
      if (subtracts && side == 0) break;
      AttentionSite before = site_;
      const absl::Status read = ReadMasked(reader_.Operand(scores, 1 - side), false);
      if (read.ok()) {
        site_.biases.push_back({reader_.Operand(scores, side), subtracts ? -1.0 : 1.0});
        return read;
      }
      if (why.ok()) why = read;
      site_ = std::move(before);
    }
    return why;
  }

  void AddVisible(const Conditions& conditions) {
    site_.visible.insert(site_.visible.end(), conditions.begin(), conditions.end());
  }

  // cap * tanh(scores / cap)
  bool IsCapped(const Element& scores) {
    if (!scores.From("Mul")) return false;
    return reader_.Operand(scores, 0).From("Tanh") || reader_.Operand(scores, 1).From("Tanh");
  }

  absl::Status ReadCapped(const Element& scores) {
    const int side = reader_.Operand(scores, 0).From("Tanh") ? 0 : 1;
    const auto cap = reader_.Number(reader_.Operand(scores, 1 - side));
    const Element inner = reader_.Operand(reader_.Operand(scores, side), 0);
    std::optional<double> divisor;
    Element capped = inner;
    if (inner.From("Div")) {
      divisor = reader_.Number(reader_.Operand(inner, 1));
      capped = reader_.Operand(inner, 0);
    }
    if (!cap || !(*cap > 0)) return Refused(scores, "its soft cap is no positive number");
    site_.softcap = *cap;
    if (!divisor) {
      // The factor 1 / cap may have gone into the scale.
      site_.scale *= *cap;
    } else if (!NearlyEqual(*divisor, *cap)) {
      site_.scale *= *cap / *divisor;
    }
    return ReadMasked(capped, /*inside_cap=*/true);
  }

  absl::Status ReadProduct(const Element& scores) {
    const Factors factors = FactorsOf(reader_, scores);
    for (size_t i = 0; i < factors.others.size(); ++i) {
      const auto product = ProductOf(reader_, factors.others[i]);
      if (!product) continue;
      site_.e = product->summed;
      site_.scale *= factors.number;
      const bool left_is_key = Mentions(product->left, site_.n);
      const Element& key = left_is_key ? product->left : product->right;
      const Element& query = left_is_key ? product->right : product->left;
      if (Mentions(query, site_.n)) return Refused(scores, "both factors depend on the key");
      Conditions kept;
      const auto kept_key = Kept(key, kept);
      kept_keys_ = kept_key.ok() ? kept : Conditions();
      site_.key = FactorsOf(reader_, kept_key.ok() ? *kept_key : key);
      AddFactors({1, factors.others}, i, site_.key);
      return ReadQuery(query);
    }
    return Refused(scores, "is no scaled product of queries and keys");
  }

  absl::Status ReadQuery(const Element& query) {
    const Factors factors = FactorsOf(reader_, query, Casts::kKeep);
    site_.scale *= factors.number * site_.key.number;
    site_.key.number = 1;
    std::vector<Element> mains;
    for (const Element& factor : factors.others) {
      if (Mentions(factor, site_.e)) mains.push_back(factor);
    }
    if (mains.size() != 1 || factors.others.size() != 1) {
      // A product that is the query itself.
      site_.query = query;
      site_.scale /= factors.number;
      return absl::OkStatus();
    }
    site_.query = mains[0];
    return absl::OkStatus();
  }

  static bool Mentions(const Element& element, const AtomPtr& atom) {
    return std::any_of(element.at.begin(), element.at.end(),
                       [&](const IndexForm& index) { return index.Mentions(atom->key); });
  }

  // --- the op ---

  absl::Status ReadOp() {
    const Node& node = *output_->producer();
    if (node.num_outputs() > 1 || node.input(Attention::kPastKey) ||
        node.input(Attention::kPastValue)) {
      return absl::NotFoundError("the op joins its caches itself");
    }
    const Value* key = node.input(Attention::kKey);
    const Value* value = node.input(Attention::kValue);
    if (site_.output.at.size() != 4 || !key->shape() || key->shape()->rank() != 4 ||
        !value->shape() || value->shape()->rank() != 4) {
      return Refused(site_.output, "queries, keys and values are not [B, H, S, D]");
    }
    const std::vector<IndexForm>& at = site_.output.at;
    const Shape& shape = *key->shape();
    const Dim groups = (*output_->shape())[1].FloorDiv(shape[1]);
    if (!groups.known()) return Refused(site_.output, "its heads are not known");
    const IndexForm head = DivMod(at[1], groups).first;
    site_.d = at[3].atom();
    site_.n = reader_.NewAxis(shape[2], {(*value->shape())[2]});
    site_.e = reader_.NewAxis(shape[3]);
    if (!site_.d) return Refused(site_.output, "its last axis is no axis of values");
    const IndexForm n = IndexForm::Of(site_.n);
    const IndexForm e = IndexForm::Of(site_.e);
    reader_.Visit(node);
    site_.key = FactorsOf(reader_, {node.input(Attention::kKey), {at[0], head, n, e}});
    site_.value = FactorsOf(
        reader_, {node.input(Attention::kValue), {at[0], head, n, IndexForm::Of(site_.d)}});
    PF_RETURN_IF_ERROR(ReadOpAttributes(node, shape[3]));
    PF_RETURN_IF_ERROR(ReadOpMask(node));
    return ReadQuery(reader_.Source({node.input(Attention::kQuery), {at[0], at[1], at[2], e}}));
  }

  absl::Status ReadOpAttributes(const Node& node, const Dim& head_size) {
    const auto size = head_size.constant();
    if (!node.attribute("scale") && !size) return Refused(site_.output, "its scale is not known");
    const double usual = size ? 1 / std::sqrt(static_cast<double>(*size)) : 0;
    PF_ASSIGN_OR_RETURN(const float scale, node.FloatAttribute("scale", static_cast<float>(usual)));
    PF_ASSIGN_OR_RETURN(const float softcap, node.FloatAttribute("softcap", 0));
    site_.scale *= scale;
    site_.softcap = softcap;
    return absl::OkStatus();
  }

  absl::Status ReadOpMask(const Node& node) {
    const IndexForm n = IndexForm::Of(site_.n);
    const std::vector<IndexForm>& at = site_.output.at;
    const Dim rows = (*output_->shape())[2];
    IndexForm position = at[2];
    if (Value* lengths = node.input(Attention::kKeyLengths)) {
      const IndexForm length = reader_.ReadIndex({lengths, {at[0]}});
      site_.visible.push_back(length - IndexForm(1) - n);
      position = position + length - IndexForm(rows);
    }
    if (IntOr(node, "is_causal", 0) != 0) site_.visible.push_back(position - n);
    const int64_t left = IntOr(node, "left_window_size", -1);
    const int64_t right = IntOr(node, "right_window_size", -1);
    if (left >= 0) site_.visible.push_back(n - position + IndexForm(left));
    if (right >= 0) site_.visible.push_back(position + IndexForm(right) - n);
    Value* mask = node.input(Attention::kMask);
    if (!mask) return absl::OkStatus();
    const auto& shape = mask->shape();
    if (!shape) return Refused(site_.output, "the shape of its mask is not known");
    std::vector<IndexForm> place = {at[0], at[1], at[2], n};
    place.erase(place.begin(), place.end() - std::min(4, shape->rank()));
    const Element element{mask, place};
    const bool is_bool = mask->dtype() == DataType::kBool;
    PF_ASSIGN_OR_RETURN(const Conditions conditions,
                        is_bool ? reader_.ReadConditions(element) : reader_.ReadHiding(element));
    AddVisible(conditions);
    return absl::OkStatus();
  }

  ElementReader& reader_;
  Value* output_;
  AttentionSite site_;
  Element sum_of_products_;
  std::optional<Element> divisor_;  // behind the sum of products
  std::optional<Element> sink_;     // of the divisor behind that, with the logarithm of the sum
  Element sink_logsum_;
  std::optional<Element> guard_;  // of rows that see no key
  bool guard_keeps_ = false;      // it is true in the other rows
  Conditions kept_keys_;          // where keys are not 0
  int softmax_axis_ = -1;
};

}  // namespace

std::vector<Node*> AttentionNodes(const Graph& graph) {
  std::vector<Node*> nodes = NodesOf(graph);
  std::erase_if(nodes, [](const Node* node) {
    const bool sum = node->Is("MatMul") || node->Is("Einsum") || node->Is("Attention");
    return !sum && !node->Is("Div") && !node->Is("Where");
  });
  std::reverse(nodes.begin(), nodes.end());
  return nodes;
}

absl::StatusOr<AttentionSite> ReadAttention(ElementReader& reader, Value* output,
                                            const AxisSplits& split) {
  return SiteReader(reader, output).Read(split);
}

namespace {

// The sum itself, or a choice between it and what stands for it.
bool IsSum(const Value* value, const Value* sum) {
  const Node* node = value->producer();
  const bool chosen = node && node->Is("Where") && (node->input(1) == sum || node->input(2) == sum);
  return value == sum || chosen;
}

// The value and what nodes that move or choose make of it, the last first.
void AddFollowers(Value* value, int steps, std::vector<Value*>& followers) {
  for (const Use& use : value->uses()) {
    const Node& next = *use.node;
    const bool follows = next.Is("Add") || next.Is("Where") || next.Is("Transpose") ||
                         next.Is("Identity") || IsViewNode(next);
    if (steps == 0 || !follows || next.graph() != value->producer()->graph()) continue;
    AddFollowers(next.output(0), steps - 1, followers);
  }
  followers.push_back(value);
}

// Values that may be logarithms of the sum and a little more, the last first.
std::vector<Value*> LogSumCandidates(const Graph& graph, const Value* sum) {
  constexpr int kMostSteps = 8;
  std::vector<Value*> candidates;
  for (const auto& node : graph.nodes()) {
    if (!node->Is("Log") || !IsSum(node->input(0), sum)) continue;
    AddFollowers(node->output(0), kMostSteps, candidates);
  }
  return candidates;
}

// True if something else reads the value than what was read so far.
bool IsReadElsewhere(const ElementReader& reader, const Value& value) {
  return value.is_output() ||
         std::any_of(value.uses().begin(), value.uses().end(),
                     [&](const Use& use) { return !reader.visited().contains(use.node); });
}

// The value at the axes of rows, in one of their orders.
std::optional<Element> AtRows(Value* value, const std::vector<IndexForm>& rows) {
  if (!value->shape()) return std::nullopt;
  Element element{value, {}};
  size_t next = 0;
  for (const Dim& dim : value->shape()->dims()) {
    if (dim.constant() == 1) {
      element.at.emplace_back();
    } else if (next < rows.size()) {
      element.at.push_back(rows[next++]);
    } else {
      return std::nullopt;
    }
  }
  return next == rows.size() ? std::optional(element) : std::nullopt;
}

}  // namespace

absl::Status CheckNoBias(const AttentionSite& site) {
  if (site.biases.empty()) return absl::OkStatus();
  return Refused(site.biases.front().element, "is added to the scores and is no mask");
}

std::optional<LogSums> LogSumsOf(ElementReader& reader, const Graph& graph,
                                 const AttentionSite& site) {
  if (site.sink && site.softmax && !site.softmax->sink()) return std::nullopt;
  return LogSumsOfKeys(reader, graph, site);
}

std::optional<LogSums> LogSumsOfKeys(ElementReader& reader, const Graph& graph,
                                     const AttentionSite& site) {
  if (!site.softmax || !site.softmax->sum()) return std::nullopt;
  std::vector<IndexForm> rows;
  for (const IndexForm& index : site.output.at) {
    if (index.Key() != site.d->key && !index.is_constant()) rows.push_back(index);
  }
  std::sort(rows.begin(), rows.end(),
            [](const IndexForm& a, const IndexForm& b) { return a.Key() < b.Key(); });
  for (Value* value : LogSumCandidates(graph, site.softmax->sum()->value)) {
    if (!IsReadElsewhere(reader, *value)) continue;
    std::vector<IndexForm> order = rows;
    do {
      const std::optional<Element> element = AtRows(value, order);
      WrittenSoftmax softmax = *site.softmax;
      if (!element || !softmax.ReadLogSum(reader.Source(*element))) continue;
      return LogSums{*element, softmax.empty()};
    } while (std::next_permutation(
        order.begin(), order.end(),
        [](const IndexForm& a, const IndexForm& b) { return a.Key() < b.Key(); }));
  }
  return std::nullopt;
}

namespace {

// Whatever reads the value, behind views, reads it in that type.
bool IsReadAs(const Value& value, DataType type) {
  return !value.is_output() && !value.uses().empty() &&
         std::all_of(value.uses().begin(), value.uses().end(), [type](const Use& use) {
           const Value* output = use.node->output(0);
           if (use.node->Is("Cast")) return output->dtype() == type;
           const bool moves = IsViewNode(*use.node) || use.node->Is("Transpose");
           return moves && use.index == 0 && IsReadAs(*output, type);
         });
}

}  // namespace

Element NarrowQuery(ElementReader& reader, const AttentionSite& site) {
  if (!site.query.From("Cast")) return site.query;
  const Element narrow = reader.Operand(site.query, 0);
  return IsReadAs(*site.output.value, narrow.value->dtype()) ? narrow : site.query;
}

}  // namespace pagefuse
