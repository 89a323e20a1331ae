// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/fuse/indexed/score_biases.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/edit/match_failure.h"

namespace pagefuse {
namespace {

absl::Status NoMask(const Element& bias, std::string_view why) {
  return MatchFailure(*bias.value, " is added to the scores and is no mask: ", why);
}

class BiasReader {
 public:
  BiasReader(IndexingAnalysis& reader, const AttentionMatch& match, const PagedAxes& axes,
             const AttentionMaskPorts& visible, bool shifts)
      : reader_(reader), match_(match), axes_(axes), visible_(visible), shifts_(shifts) {}

  absl::StatusOr<ScoreBiases> Read() {
    for (const ScoreBias& bias : match_.biases) {
      const Element element = reader_.Source(bias.element);
      PF_RETURN_IF_ERROR(element.From("Where") ? ReadAmongQueries(bias, element)
                                               : ReadSlopes(bias, element));
    }
    return biases_;
  }

 private:
  // The one factor that runs over heads alone, and the other.
  absl::Status ReadSlopes(const ScoreBias& bias, const Element& element) {
    const Factors factors = FactorsOf(reader_, element);
    if (factors.others.size() != 2 || biases_.slopes) {
      return NoMask(element, "expected one slope times one distance");
    }
    for (int i : {0, 1}) {
      const Element& slope = factors.others[i];
      if (!RunsOverHeads(slope)) continue;
      biases_.slopes = slope;
      return ReadDistance(factors.others[1 - i], bias.sign * factors.number);
    }
    return NoMask(element, "no factor depends on the heads alone");
  }

  bool RunsOverHeads(const Element& element) const {
    AxisSymbols heads = axes_.heads;
    heads.insert(heads.end(), axes_.groups.begin(), axes_.groups.end());
    for (const IndexExpr& at : element.at) {
      for (const auto& [key, term] : at.terms()) {
        const bool head = std::ranges::any_of(
            heads, [&key = key](const IndexSymbolPtr& symbol) { return symbol->key == key; });
        if (!head) return false;
      }
    }
    return true;
  }

  absl::Status ReadDistance(const Element& distance, double number) {
    if (!distance.From("Sqrt")) {
      const IndexExpr to_key = reader_.ReadIndex(distance);
      if (number != 1) return NoMask(distance, StrCat("expected a factor of 1, got ", number));
      return CheckRelative(distance, to_key);
    }
    biases_.root = true;
    if (number != -1) return NoMask(distance, StrCat("expected a factor of -1, got ", number));
    const Element root = reader_.Operand(distance, 0);
    const int side = root.From("Max") && reader_.Number(reader_.Operand(root, 0)) == 0 ? 1 : 0;
    if (!root.From("Max") || reader_.Number(reader_.Operand(root, 1 - side)) != 0) {
      return NoMask(root, "the distance under the root may be negative");
    }
    const IndexExpr back = ReadInteger(reader_.Operand(root, side));
    if ((back - Position() + Key()).number() == 0) return absl::OkStatus();
    return NoMask(root, StrCat(back.Key(), " is no distance of a key from its query"));
  }

  // An integer that may have been cast to float.
  IndexExpr ReadInteger(Element element) {
    while (element.From("Cast")) element = reader_.Operand(element, 0);
    return reader_.ReadIndex(element);
  }

  // The op counts keys from the first query; another start is the same for all keys of a row.
  absl::Status CheckRelative(const Element& element, const IndexExpr& relative) {
    const IndexExpr start = Key() - relative;
    if (start.Mentions(match_.n->key)) {
      return NoMask(element, StrCat(relative.Key(), " does not grow by 1 a key"));
    }
    if (!shifts_ || (start - Context()).number() == 0) return absl::OkStatus();
    return NoMask(element,
                  StrCat("keys are counted from ", start.Key(), ", expected ", Context().Key()));
  }

  // Where (query and key among the step's, bias[query, key], 0)
  absl::Status ReadAmongQueries(const ScoreBias& bias, const Element& element) {
    if (bias.sign != 1 || biases_.among_queries) return NoMask(element, "it is subtracted");
    if (reader_.Number(reader_.Operand(element, 2)) != 0.0) {
      return NoMask(element, "expected 0 beside a choice");
    }
    PF_ASSIGN_OR_RETURN(const Conditions among,
                        reader_.ReadConditions(reader_.Operand(element, 0)));
    reader_.Assume(among);
    const Element table = reader_.Operand(element, 1);
    if (table.at.size() != 2 || !table.value->shape()) {
      return NoMask(element, "expected an element of a matrix");
    }
    const IndexExpr key = Key() - Context();
    const IndexExpr query = Position() - Context();
    const auto is_index = [](const IndexExpr& at, const IndexExpr& expected) {
      return (at - expected).number() == 0;
    };
    if (!is_index(table.at[0], query) || !is_index(table.at[1], key)) {
      return NoMask(element, StrCat("it is read at [", table.at[0].Key(), ", ", table.at[1].Key(),
                                    "], expected [", query.Key(), ", ", key.Key(), "]"));
    }
    const IndexExpr left = IndexExpr((*table.value->shape())[1]) - key - IndexExpr(1);
    for (const IndexExpr& condition : among) {
      if (!is_index(condition, key) && !is_index(condition, left)) {
        return NoMask(element, StrCat("it is added where ", condition.Key(), " >= 0"));
      }
    }
    biases_.among_queries = table.value;
    return absl::OkStatus();
  }

  IndexExpr Key() const { return IndexExpr::Of(match_.n); }

  // The position of the row, and of its sequence's first query.
  IndexExpr Position() const { return PositionOf(axes_, visible_); }
  IndexExpr Context() const { return ContextOf(axes_, visible_); }

  IndexingAnalysis& reader_;
  const AttentionMatch& match_;
  const PagedAxes& axes_;
  const AttentionMaskPorts& visible_;
  bool shifts_;
  ScoreBiases biases_;
};

}  // namespace

absl::StatusOr<ScoreBiases> ReadScoreBiases(IndexingAnalysis& reader, const AttentionMatch& match,
                                            const PagedAxes& axes,
                                            const AttentionMaskPorts& visible, bool shifts) {
  return BiasReader(reader, match, axes, visible, shifts).Read();
}

}  // namespace pagefuse
