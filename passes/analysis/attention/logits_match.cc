// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/analysis/attention/logits_match.h"

#include <algorithm>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/analysis/indexing/factors.h"
#include "pagefuse/passes/edit/match_failure.h"
#include "pagefuse/passes/edit/ports.h"

namespace pagefuse {
namespace {

class LogitsReader {
 public:
  explicit LogitsReader(IndexingAnalysis& reader) : reader_(reader) {}

  absl::StatusOr<LogitsMatch> Read(Value* output, const std::vector<IndexExpr>& rows) {
    PF_ASSIGN_OR_RETURN(match_.output, reader_.Whole(output));
    if (match_.output.at.size() < 2) return absl::NotFoundError("no matrix");
    match_.n = match_.output.at.back().symbol();
    if (!match_.n) return absl::NotFoundError("one key");
    std::copy(rows.begin(), rows.end(), match_.output.at.begin());
    masked_ = reader_.Source(match_.output);
    PF_RETURN_IF_ERROR(ReadMask());
    return std::move(match_);
  }

  absl::StatusOr<LogitsMatch> ReadScores(const Element& scores, const IndexSymbolPtr& key_axis) {
    match_.output = scores;
    match_.n = key_axis;
    PF_RETURN_IF_ERROR(ReadFactors(scores, false));
    if (!match_.key.value)
      return MatchFailure(*scores.value, ": no product of queries and keys is rectified");
    return std::move(match_);
  }

 private:
  // scores + a mask of 0 and the lowest
  absl::Status ReadAdded() {
    for (int side : {1, 0}) {
      const Element mask = reader_.Operand(masked_, side);
      // Sums of sums would be followed to their end from each of them.
      if (mask.From("Add") || mask.From("Sub")) continue;
      const auto visible = reader_.ReadHiding(mask);
      if (!visible.ok() || visible->empty()) continue;
      PF_RETURN_IF_ERROR(ReadFactors(reader_.Operand(masked_, 1 - side), false));
      if (!match_.key.value) return absl::NotFoundError("no rectified product");
      match_.visible = *visible;
      return absl::OkStatus();
    }
    return absl::NotFoundError("no mask is added");
  }

  absl::Status ReadMask() {
    if (masked_.From("Add")) return ReadAdded();
    if (!masked_.From("Where")) return absl::NotFoundError("no mask");
    const auto chosen = reader_.Number(reader_.Operand(masked_, 1));
    const auto other = reader_.Number(reader_.Operand(masked_, 2));
    const bool keeps = other && HidesScore(*other);
    if (!keeps && !(chosen && HidesScore(*chosen))) return absl::NotFoundError("nothing is hidden");
    PF_RETURN_IF_ERROR(ReadFactors(reader_.Operand(masked_, keeps ? 1 : 2), false));
    if (!match_.key.value) return absl::NotFoundError("no rectified product");
    const Element condition = reader_.Operand(masked_, 0);
    PF_ASSIGN_OR_RETURN(match_.visible, keeps ? reader_.ReadConditions(condition)
                                              : reader_.ReadNegation(condition));
    return absl::OkStatus();
  }

  // Factors outside and inside of the sum over heads, then of the rectification.
  absl::Status ReadFactors(const Element& element, bool in_sum) {
    Factors factors = FactorsOf(reader_, element);
    match_.number *= factors.number;
    if (in_sum) PF_RETURN_IF_ERROR(ReadSigned(factors));
    for (const Element& factor : factors.others) {
      PF_RETURN_IF_ERROR(ReadFactor(factor, in_sum));
    }
    return absl::OkStatus();
  }

  // x * (x > 0)
  absl::Status ReadSigned(Factors& factors) {
    std::vector<Element>& others = factors.others;
    for (size_t sign = 0; sign < others.size(); ++sign) {
      const Element condition = others[sign];  // its cast is followed
      if (condition.value->dtype() != DataType::kBool) continue;
      for (size_t i = 0; i < others.size(); ++i) {
        if (i == sign || !IsAboveZero(condition, others[i])) continue;
        PF_RETURN_IF_ERROR(ReadProduct(others[i]));
        others.erase(others.begin() + static_cast<int64_t>(std::max(i, sign)));
        others.erase(others.begin() + static_cast<int64_t>(std::min(i, sign)));
        return absl::OkStatus();
      }
    }
    return absl::OkStatus();
  }

  // x > 0, or not less: where it is 0 both are the same.
  bool IsAboveZero(const Element& condition, const Element& x) {
    for (int side : {0, 1}) {
      const bool above = side == 0 ? condition.From("Greater") || condition.From("GreaterOrEqual")
                                   : condition.From("Less") || condition.From("LessOrEqual");
      if (!above || reader_.Number(reader_.Operand(condition, 1 - side)) != 0.0) continue;
      if (reader_.Operand(condition, side).Key() == x.Key()) return true;
    }
    return false;
  }

  absl::Status ReadFactor(const Element& factor, bool in_sum) {
    if (!in_sum && factor.From("ReduceSum")) return ReadSum(factor);
    if (!in_sum) {
      if (const auto product = ProductOf(reader_, factor)) {
        if (match_.h) return MatchFailure(*factor.value, ": is a sum beside that over heads");
        match_.h = product->summed;
        PF_RETURN_IF_ERROR(ReadFactors(product->left, true));
        return ReadFactors(product->right, true);
      }
    }
    if (in_sum) {
      if (const auto inner = Rectified(factor)) return ReadProduct(*inner);
    }
    return Place(factor);
  }

  absl::Status ReadSum(const Element& sum) {
    if (match_.h) return MatchFailure(*sum.value, ": is a sum beside that over heads");
    const auto reduced = ReducedBy(*sum.producer(), reader_.contents());
    if (!reduced) return MatchFailure(*sum.value, ": sums over more than heads");
    match_.h = reader_.NewAxis(reduced->length);
    reader_.Visit(*sum.producer());
    return ReadFactors(reduced->At(sum, IndexExpr::Of(match_.h)), true);
  }

  // What is cut off below 0.
  std::optional<Element> Rectified(const Element& element) {
    if (element.From("Relu")) return reader_.Operand(element, 0);
    if (element.From("Where")) {
      const Element chosen = reader_.Operand(element, 1);
      const bool zero = reader_.Number(reader_.Operand(element, 2)) == 0.0;
      if (zero && IsAboveZero(reader_.Operand(element, 0), chosen)) return chosen;
    }
    if (element.From("Max")) {
      for (int side : {0, 1}) {
        const auto number = reader_.Number(reader_.Operand(element, side));
        if (number && *number == 0) return reader_.Operand(element, 1 - side);
      }
    }
    if (element.From("Clip") && !element.producer()->input(ports::Clip::kHigh) &&
        element.producer()->input(ports::Clip::kLow)) {
      const auto number = reader_.Number(reader_.Operand(element, ports::Clip::kLow));
      if (number && *number == 0) return reader_.Operand(element, 0);
    }
    return std::nullopt;
  }

  absl::Status ReadProduct(const Element& element) {
    if (match_.key.value)
      return MatchFailure(*element.value, ": more than one product is rectified");
    const Factors factors = FactorsOf(reader_, element);
    if (!(factors.number > 0))
      return MatchFailure(*element.value, ": a factor below 0 is rectified");
    match_.number *= factors.number;
    for (const Element& factor : factors.others) {
      const auto product = match_.d ? std::nullopt : ProductOf(reader_, factor);
      if (!product) {
        PF_RETURN_IF_ERROR(PlaceRectified(factor));
        continue;
      }
      match_.d = product->summed;
      for (const Element& side : {product->left, product->right}) {
        PF_RETURN_IF_ERROR(ReadSide(side));
      }
    }
    if (match_.query.value && match_.key.value) return absl::OkStatus();
    return MatchFailure(*element.value, ": no product of queries and keys is rectified");
  }

  absl::Status ReadSide(const Element& side) {
    const Factors factors = FactorsOf(reader_, side);
    if (!(factors.number > 0)) return MatchFailure(*side.value, ": has a factor below 0");
    match_.number *= factors.number;
    for (const Element& factor : factors.others) {
      if (!factor.Mentions(match_.d)) {
        PF_RETURN_IF_ERROR(PlaceRectified(factor));
        continue;
      }
      Element& port = factor.Mentions(match_.n) ? match_.key : match_.query;
      if (port.value) return MatchFailure(*factor.value, ": is one factor too many");
      port = factor;
      if (port.From("BitCast") && port.value->dtype() == DataType::kFloat8E4M3FN) {
        port = reader_.Operand(port, 0);
      } else if (!IsFloatingPoint(port.value->dtype())) {
        return MatchFailure(*port.value, ": is no float and no code of one");
      }
    }
    return absl::OkStatus();
  }

  // The scale of a key is rectified in the ops too; a factor of the row comes out of the Relu only
  // if it is not negative.
  absl::Status PlaceRectified(const Element& factor) {
    if (factor.Mentions(match_.n)) return Place(factor);
    return MatchFailure(*factor.value, ": is a factor of unknown sign that is rectified");
  }

  absl::Status Place(const Element& factor) {
    // The cast behind it is followed, and what is built of the factors multiplies floats.
    if (!IsFloatingPoint(factor.value->dtype())) {
      return MatchFailure(*factor.value, ": is a factor of ", DataTypeName(factor.value->dtype()),
                          ", expected one of floats");
    }
    (factor.Mentions(match_.n) ? match_.key_factors : match_.row_factors).push_back(factor);
    return absl::OkStatus();
  }

  IndexingAnalysis& reader_;
  LogitsMatch match_;
  Element masked_;  // the output, behind what only moves it
};

}  // namespace

absl::StatusOr<LogitsMatch> ReadLogits(IndexingAnalysis& reader, Value* output,
                                       const std::vector<IndexExpr>& rows) {
  return LogitsReader(reader).Read(output, rows);
}

absl::StatusOr<LogitsMatch> ReadIndexScores(IndexingAnalysis& reader, const Element& scores,
                                            const IndexSymbolPtr& key_axis) {
  return LogitsReader(reader).ReadScores(scores, key_axis);
}

}  // namespace pagefuse
