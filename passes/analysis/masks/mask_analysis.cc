// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/analysis/masks/mask_analysis.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/infer/exact_integers.h"
#include "pagefuse/passes/analysis/indexing/indexing_analysis.h"
#include "pagefuse/passes/edit/match_failure.h"

namespace pagefuse {
namespace {

using Kind = IndexSymbol::Kind;

// The element of a mask that is counted where conditions ask whether it is 1.
Element CountedOnes(const IndexSymbol& count) {
  const std::vector<IndexExpr>& args = count.args;
  for (size_t i = 1; i < args.size(); ++i) {
    const IndexSymbolPtr one = (args[i] + IndexExpr(1)).symbol();
    if (!one || one->kind != Kind::kLoad) continue;
    const std::string at_least = args[i].Key(), at_most = args[i].Times(Dim(-1)).Key();
    const bool alone = std::all_of(args.begin() + 1, args.end(), [&](const IndexExpr& other) {
      return other.Key() == at_least || other.Key() == at_most;
    });
    if (alone) return {one->tensor, one->args};
  }
  return {};
}

// The element of a mask input [B, T] whose ones along a row `count` is the number of.
Element CountedInput(IndexingAnalysis& reader, const IndexExpr& count) {
  const IndexSymbolPtr symbol = count.symbol();
  if (!symbol) return {};
  Element summand;
  if (symbol->kind == Kind::kCount) {
    summand = CountedOnes(*symbol);
  } else if (symbol->kind == Kind::kLoad && symbol->tensor->producer() &&
             symbol->tensor->producer()->Is("ReduceSum")) {
    const Element sum{symbol->tensor, symbol->args};
    const auto reduced = ReducedBy(*sum.producer(), reader.contents());
    if (!reduced || reduced->axis != 1) return {};
    if (!HoldsExactly(symbol->tensor->dtype(), 0, reduced->length)) return {};
    const IndexExpr place = IndexExpr::Of(reader.NewAxis(reduced->length));
    summand = reader.Source(reduced->At(sum, place));
    while (summand.From("Cast")) summand = reader.Operand(summand, 0);
  }
  const bool by_row = summand.value && summand.at.size() == 2 && !summand.producer();
  return by_row ? summand : Element();
}

// Sorts the conditions of a mask into a form.
class FormReader {
 public:
  FormReader(Value* mask, const SymbolicContents& contents)
      : mask_(mask), reader_(contents, Trust::kNothing) {
    reader_.HideFrom(kLowBesideSoftmax);
  }

  absl::StatusOr<MaskForm> Read() {
    constexpr std::string_view kNames[] = {"key", "query", "head", "batch"};
    const int rank = mask_->shape() ? mask_->shape()->rank() : -1;
    if (rank < 2 || rank > 4) return Stopped("has an unfit rank");
    for (int axis = 0; axis < rank; ++axis) {
      const Dim& length = (*mask_->shape())[axis];
      const IndexSymbolPtr index = MakeAxis(std::string(kNames[rank - 1 - axis]), length);
      at_.push_back(length.constant() == 1 ? IndexExpr() : IndexExpr::Of(index));
    }
    const absl::StatusOr<Conditions> conditions = reader_.ReadMask({mask_, at_});
    if (reader_.GaveUp()) return Stopped("is computed in too many steps");
    if (!conditions.ok()) return MatchFailure("mask: ", StdView(conditions.status().message()));
    std::set<std::string> seen;
    for (const IndexExpr& condition : *conditions) {
      if (!seen.insert(condition.Key()).second) continue;
      PF_RETURN_IF_ERROR(Sort(condition));
    }
    form_.low = reader_.highest_hiding();
    return form_;
  }

 private:
  absl::Status Stopped(std::string_view why) const {
    return MatchFailure("mask: ", *mask_, " ", why);
  }
  absl::Status Unfit(const IndexExpr& condition, std::string_view why) const {
    return Stopped(StrCat("shows keys where ", condition.Key(), " >= 0, which ", why));
  }

  // The axis of the mask that an index runs along, or -1.
  int AxisOf(const IndexExpr& index) const {
    const IndexSymbolPtr symbol = index.symbol();
    for (size_t axis = 0; symbol && axis < at_.size(); ++axis) {
      const IndexSymbolPtr whole = at_[axis].symbol();
      if (!whole) continue;
      const bool part = IsPart(*symbol) && symbol->args[0].Key() == whole->key;
      if (part || symbol->key == whole->key) return static_cast<int>(axis);
    }
    return -1;
  }
  int KeyAxis() const { return static_cast<int>(at_.size()) - 1; }

  absl::Status Sort(const IndexExpr& condition) {
    if (ProvablyNotNegative(condition.Lower())) return absl::OkStatus();
    if (TruthOf({condition}) == false) return Stopped("shows nothing");
    if (const IndexSymbolPtr load = LoadOf(condition)) return AddPadding(load->tensor, load->args);
    if (AddCounted(condition)) return absl::OkStatus();
    return AddLimit(condition);
  }

  // The element of a mask input that is 1.
  static IndexSymbolPtr LoadOf(const IndexExpr& condition) {
    const IndexSymbolPtr load = (condition + IndexExpr(1)).symbol();
    const bool loads = load && load->kind == Kind::kLoad && !load->tensor->producer();
    return loads && !load->tensor->IsConstant() ? load : nullptr;
  }

  absl::Status AddPadding(Value* padding, const std::vector<IndexExpr>& at) {
    if (at.size() != 2) {
      return Stopped(StrCat("reads \"", padding->name(), "\", which is no [batch, key] mask"));
    }
    if (!IsRow(at[0]) || AxisOf(at[1]) != KeyAxis()) {
      return Stopped(StrCat("reads \"", padding->name(), "\" at [", at[0].Key(), ", ", at[1].Key(),
                            "], not by batch and key"));
    }
    if (form_.padding) return Stopped("reads two padding masks");
    form_.padding = padding;
    form_.padding_batch = at[0].symbol() ? at[0].symbol()->extent : Dim(1);
    form_.padding_keys = at[1].symbol()->extent;
    form_.padding_is_indexed =
        !ProvablyEqual(*padding->shape(), Shape{form_.padding_batch, form_.padding_keys});
    return absl::OkStatus();
  }

  // The batch, or the only row of one. The first of three axes is that of heads.
  bool IsRow(const IndexExpr& index) const {
    return index.number() == 0 || (at_.size() == 4 && AxisOf(index) == 0);
  }

  // key < the ones of padding[batch].
  bool AddCounted(const IndexExpr& condition) {
    for (const auto& [name, term] : condition.terms()) {
      const IndexExpr keys = IndexExpr::Of(term.first);
      if (term.second.constant() != -1 || AxisOf(keys) != KeyAxis()) continue;
      const Element ones = CountedInput(reader_, condition + keys + IndexExpr(1));
      if (!ones.value || !IsRow(ones.at[0]) || form_.padding) return false;
      form_.padding = ones.value;
      form_.padding_is_counted = true;
      form_.padding_batch = (*ones.value->shape())[0];
      form_.padding_keys = term.first->extent;
      return true;
    }
    return false;
  }

  // i - j + upper >= 0, or j - i - lower >= 0.
  absl::Status AddLimit(const IndexExpr& condition) {
    constexpr std::string_view kNeither = "is neither causal nor a window";
    Dim lengths[2];             // of queries and keys
    int64_t steps[2] = {0, 0};  // from one to the next
    for (const auto& [name, term] : condition.terms()) {
      const int from_query = AxisOf(IndexExpr::Of(term.first)) - KeyAxis() + 1;
      const auto step = term.second.constant();
      if (from_query < 0) return Unfit(condition, "depends on more than query and key");
      if (!step || steps[from_query] != 0) return Unfit(condition, kNeither);
      lengths[from_query] = term.first->extent;
      steps[from_query] = *step;
    }
    const int64_t sign = steps[1];
    if (std::abs(sign) != 1 || steps[0] != -sign) return Unfit(condition, kNeither);
    PF_RETURN_IF_ERROR(AddLengths(lengths[0], lengths[1]));
    std::optional<Dim>& limit = sign < 0 ? form_.upper : form_.lower;
    const Dim other = sign < 0 ? condition.constant() : condition.constant() * Dim(-1);
    // Of two limits the one that shows fewer keys.
    if (limit && ProvablyNotNegative((other - *limit) * Dim(-sign))) return absl::OkStatus();
    if (limit && !ProvablyNotNegative((*limit - other) * Dim(-sign))) {
      return Stopped(sign < 0 ? "has two upper limits" : "has two lower limits");
    }
    limit = other;
    return absl::OkStatus();
  }

  // Notes over how many queries and keys a limit holds.
  absl::Status AddLengths(const Dim& queries, const Dim& keys) {
    if (!form_.upper && !form_.lower) {
      form_.queries = queries;
      form_.keys = keys;
      return absl::OkStatus();
    }
    if (ProvablyEqual(form_.queries, queries) && ProvablyEqual(form_.keys, keys)) {
      return absl::OkStatus();
    }
    return Stopped(StrCat("has limits over ", form_.queries.ToString(), " and ", queries.ToString(),
                          " queries, or ", form_.keys.ToString(), " and ", keys.ToString(),
                          " keys"));
  }

  Value* mask_;
  IndexingAnalysis reader_;
  std::vector<IndexExpr> at_;
  MaskForm form_;
};

}  // namespace

const Value* PaddingInputOf(const Value* mask, const SymbolicContents& contents) {
  // One that is as long as the queries hides rows of them.
  const auto& shape = mask->shape();
  if (!shape || shape->rank() != 4 || (*shape)[1].constant() != 1 || (*shape)[2].constant() != 1) {
    return nullptr;
  }
  const Node* node = mask->producer();
  bool is_gathered = false;
  for (const char* op : {"Expand", "Unsqueeze", "Gather", "Gather"}) {
    if (!node || !node->Is(op)) continue;
    is_gathered = is_gathered || node->Is("Gather");
    node = node->input(0)->producer();
  }
  if (!node || !node->Is("Cast") || !node->input(0)->is_input()) return nullptr;
  const Value* padding = node->input(0);
  if (!is_gathered) return padding;
  // The first of all, or others?
  const absl::StatusOr<MaskForm> form = AnalyseMask(mask, contents);
  const bool is_left = form.ok() && form->padding == padding && !form->padding_is_counted;
  return is_left ? padding : nullptr;
}

absl::StatusOr<MaskForm> AnalyseMask(const Value* mask, const SymbolicContents& contents) {
  return FormReader(const_cast<Value*>(mask), contents).Read();
}

bool IsZeroOrOne(const Value* value, const SymbolicContents& contents) {
  IndexingAnalysis reader(contents);
  const auto places = reader.Places(const_cast<Value*>(value));
  return places.ok() && reader.IsZeroOrOne(*places);
}

}  // namespace pagefuse
