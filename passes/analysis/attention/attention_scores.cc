// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "absl/container/flat_hash_set.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/analysis/attention/attention_parts.h"
#include "pagefuse/passes/edit/match_failure.h"

namespace pagefuse {
namespace {

bool NearlyEqual(double a, double b) { return std::abs(a - b) <= 1e-6 * std::abs(b); }

class ScoreReader {
 public:
  ScoreReader(IndexingAnalysis& reader, Conditions& kept_keys, AttentionMatch& match)
      : reader_(reader), kept_keys_(kept_keys), match_(match) {}

  // Softmax(Concat(scores, sink)), of which the columns of the scores were taken.
  absl::Status Read(const Element& scores, int axis) {
    softmax_axis_ = axis;
    const Element source = reader_.Source(scores);
    Element whole = scores;
    while (whole.producer() && whole.producer() != source.producer() && !whole.From("Concat")) {
      whole = reader_.OneStep(whole);
    }
    if (whole.From("Concat")) {
      PF_RETURN_IF_ERROR(ReadSink(whole));
    } else if (!CoversKeys(scores)) {
      return MatchFailure(*scores.value,
                          ": a part of the probabilities is cut away that is no sink");
    }
    return ReadMasked(source, /*inside_cap=*/false);
  }

 private:
  bool CoversKeys(const Element& scores) const {
    const auto& shape = scores.value->shape();
    const IndexSymbolPtr key = scores.at[softmax_axis_].symbol();
    return shape && key && (ProvablyEqual((*shape)[softmax_axis_], key->extent));
  }

  absl::Status ReadSink(const Element& joined) {
    const Node& concat = *joined.producer();
    const int rank = static_cast<int>(joined.at.size());
    const auto axis = NormalAxis(IntOr(concat, "axis", 0), rank);
    if (concat.num_inputs() != 2)
      return MatchFailure(*joined.value, ": joins more than scores and a sink");
    const Element scores = reader_.OneStep(joined);
    for (Value* part : concat.inputs()) {
      if (part == scores.value) continue;
      if (!part->shape() || (*part->shape())[static_cast<int>(axis)].constant() != 1) {
        return MatchFailure(*joined.value, ": joins more than one column to the scores");
      }
      Element sink{part, joined.at};
      sink.at[axis] = IndexExpr();
      match_.sink = reader_.Source(sink);
    }
    if (!match_.sink) return MatchFailure(*joined.value, ": joins scores with themselves");
    return absl::OkStatus();
  }

  // mask (softcap (scale * product)), the mask outermost. What is read twice, on several ways through
  // sums, and was none the first time, is none.
  absl::Status ReadMasked(const Element& scores, bool inside_cap) {
    constexpr size_t kMostElements = 1024;
    if (!read_.insert(StrCat(scores.Key(), inside_cap)).second || read_.size() > kMostElements) {
      return MatchFailure(*scores.value, " is a sum of sums without a product of queries and keys");
    }
    const absl::Status status = ReadMaskedOnce(scores, inside_cap);
    if (status.ok()) read_.clear();
    return status;
  }

  absl::Status ReadMaskedOnce(const Element& scores, bool inside_cap) {
    if (scores.From("Where") || scores.From("Add") || scores.From("Sub")) {
      if (inside_cap) return MatchFailure(*scores.value, ": the soft cap comes after the mask");
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
    if (!(other && reader_.Hides(*other)) && !(chosen && reader_.Hides(*chosen))) {
      return MatchFailure(*scores.value,
                          ": chooses between scores and a number that hides nothing");
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
      AttentionMatch before = match_;
      const absl::Status read = ReadMasked(reader_.Operand(scores, 1 - side), false);
      if (read.ok()) {
        match_.biases.push_back({reader_.Operand(scores, side), subtracts ? -1.0 : 1.0});
        return read;
      }
      if (why.ok()) why = read;
      match_ = std::move(before);
    }
    return why;
  }

  void AddVisible(const Conditions& conditions) {
    match_.visible.insert(match_.visible.end(), conditions.begin(), conditions.end());
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
    if (!cap || *cap == 0 || !std::isfinite(*cap))
      return MatchFailure(*scores.value, ": its soft cap is no finite number but 0");
    // c * tanh(x / c) is the same for -c.
    match_.softcap = std::abs(*cap);
    if (!divisor) {
      // The factor 1 / cap may have gone into the scale.
      match_.scale *= *cap;
    } else if (!NearlyEqual(*divisor, *cap)) {
      match_.scale *= *cap / *divisor;
    }
    return ReadMasked(capped, /*inside_cap=*/true);
  }

  absl::Status ReadProduct(const Element& scores) {
    const Factors factors = FactorsOf(reader_, scores);
    for (size_t i = 0; i < factors.others.size(); ++i) {
      const auto product = ProductOf(reader_, factors.others[i]);
      if (!product) continue;
      match_.e = product->summed;
      match_.scale *= factors.number;
      const bool left_is_key = product->left.Mentions(match_.n);
      const Element& key = left_is_key ? product->left : product->right;
      const Element& query = left_is_key ? product->right : product->left;
      if (query.Mentions(match_.n))
        return MatchFailure(*scores.value, ": both factors depend on the key");
      ReadKey(key);
      AddFactors({1, factors.others}, i, match_.key);
      ReadQuery(reader_, query, match_);
      return absl::OkStatus();
    }
    return MatchFailure(*scores.value, ": is no scaled product of queries and keys");
  }

  // Keys may be 0 where they are hidden, before or behind their own factors.
  void ReadKey(const Element& key) {
    Conditions kept;
    bool whole = true;
    const auto take = [&](const Element& element) {
      const auto taken = KeptElement(reader_, element, kept);
      whole = whole && taken.ok();
      return FactorsOf(reader_, taken.ok() ? *taken : element);
    };
    const Factors outer = take(key);
    match_.key = {outer.number, {}};
    for (const Element& factor : outer.others) AddFactors(take(factor), kNone, match_.key);
    kept_keys_ = whole ? kept : Conditions();
  }

  static constexpr size_t kNone = static_cast<size_t>(-1);
  IndexingAnalysis& reader_;
  Conditions& kept_keys_;
  AttentionMatch& match_;
  absl::flat_hash_set<std::string> read_;  // and no scores
  int softmax_axis_ = -1;
};

}  // namespace

absl::StatusOr<Element> KeptElement(IndexingAnalysis& reader, const Element& element,
                                    Conditions& kept) {
  const Element source = reader.Source(element);
  if (!source.From("Where")) return element;
  for (int side : {1, 2}) {
    if (reader.Number(reader.Operand(source, side)) != 0.0) continue;
    const Element condition = reader.Operand(source, 0);
    // As ScoresOf takes it.
    if (condition.From("IsNaN")) return element;
    PF_ASSIGN_OR_RETURN(const Conditions conditions, side == 2 ? reader.ReadConditions(condition)
                                                               : reader.ReadNegation(condition));
    kept.insert(kept.end(), conditions.begin(), conditions.end());
    return reader.Operand(source, 3 - side);
  }
  return element;
}

void AddFactors(const Factors& from, size_t except, Factors& to) {
  to.number *= from.number;
  for (size_t i = 0; i < from.others.size(); ++i) {
    if (i != except) to.others.push_back(from.others[i]);
  }
}

void ReadQuery(IndexingAnalysis& reader, const Element& query, AttentionMatch& match) {
  const Factors factors = FactorsOf(reader, query, Casts::kKeep);
  match.scale *= factors.number * match.key.number;
  match.key.number = 1;
  std::vector<Element> mains;
  for (const Element& factor : factors.others) {
    if (factor.Mentions(match.e)) mains.push_back(factor);
  }
  if (mains.size() != 1 || factors.others.size() != 1) {
    // A product that is the query itself.
    match.query = query;
    match.scale /= factors.number;
    return;
  }
  match.query = mains[0];
}

absl::Status ReadScores(IndexingAnalysis& reader, const Element& scores, int axis,
                        Conditions& kept_keys, AttentionMatch& match) {
  return ScoreReader(reader, kept_keys, match).Read(scores, axis);
}

}  // namespace pagefuse
