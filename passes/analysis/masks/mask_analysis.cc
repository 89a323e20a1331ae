#include "pagefuse/passes/analysis/masks/mask_analysis.h"

#include <algorithm>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/analysis/masks/mask_reader.h"

namespace pagefuse {
namespace {

absl::Status AddPadding(const Value* mask, const MaskAtom& symbol, int rank, MaskForm& form) {
  // A batch axis of -1 is a batch of one. The first of three axes is that of heads.
  const bool batch_fits = symbol.batch_axis == -1 || (rank == 4 && symbol.batch_axis == 0);
  if (!batch_fits || symbol.key_axis != rank - 1) {
    return MaskStoppedAt(mask, StrCat("reads \"", symbol.padding->name(), "\" by unexpected axes"));
  }
  if (form.padding && form.padding != symbol.padding) {
    return MaskStoppedAt(mask, "reads two padding masks");
  }
  form.padding = symbol.padding;
  form.padding_is_indexed = symbol.indexed;
  form.padding_is_counted = symbol.counted;
  form.padding_batch = symbol.batch_axis < 0 ? Dim(1) : symbol.lengths[symbol.batch_axis];
  form.padding_keys = symbol.lengths[symbol.key_axis];
  return absl::OkStatus();
}

// Notes over how many queries and keys a limit holds.
absl::Status AddLengths(const Value* mask, const MaskAtom& symbol, int rank, MaskForm& form) {
  const Dim& queries = symbol.lengths[rank - 2];
  const Dim& keys = symbol.lengths[rank - 1];
  const bool first = !form.upper && !form.lower;
  if (first) {
    form.queries = queries;
    form.keys = keys;
  }
  if (ProvablyEqual(form.queries, queries) && ProvablyEqual(form.keys, keys)) {
    return absl::OkStatus();
  }
  return MaskStoppedAt(
      mask, StrCat("has limits over ", form.queries.ToString(), " and ", queries.ToString(),
                   " queries, or ", form.keys.ToString(), " and ", keys.ToString(), " keys"));
}

// Puts one factor into the form, or says why it does not fit there.
absl::Status AddAtom(const Value* mask, const MaskAtom& symbol, int rank, MaskForm& form) {
  if (symbol.padding) return AddPadding(mask, symbol, rank, form);
  const std::vector<int64_t>& c = symbol.bound.coefficients;
  for (int axis = 0; axis + 2 < rank; ++axis) {
    if (c[axis] != 0) return MaskStoppedAt(mask, "depends on batch or head");
  }
  PF_RETURN_IF_ERROR(AddLengths(mask, symbol, rank, form));
  const int64_t query = c[rank - 2];
  const int64_t key = c[rank - 1];
  // bound = constant + query*i + key*j <= 0
  if (key == 1 && query == -1) {
    if (form.upper) return MaskStoppedAt(mask, "has two upper limits");
    form.upper = Dim(0) - symbol.bound.constant;
    return absl::OkStatus();
  }
  if (key == -1 && query == 1) {
    if (form.lower) return MaskStoppedAt(mask, "has two lower limits");
    form.lower = symbol.bound.constant;
    return absl::OkStatus();
  }
  return MaskStoppedAt(mask, "compares indices in a form that is neither causal nor a window");
}

bool SameLimit(const MaskAtom& a, const MaskAtom& b) {
  return !a.padding && !b.padding && a.bound.coefficients == b.bound.coefficients &&
         ProvablyEqual(a.bound.constant, b.bound.constant) &&
         ProvablyEqual(Shape(a.lengths), Shape(b.lengths));
}

}  // namespace

const Value* PaddingInputOf(const Value* mask) {
  const Node* node = mask->producer();
  for (const char* op : {"Expand", "Unsqueeze", "Slice"}) {
    if (node && node->Is(op)) node = node->input(0)->producer();
  }
  const bool is_left = node && node->Is("Cast") && node->input(0)->is_input();
  return is_left ? node->input(0) : nullptr;
}

absl::StatusOr<MaskForm> AnalyseMask(const Value* mask, const SymbolicContents& contents) {
  const int rank = MaskRank(mask);
  if (rank < 2 || rank > 4) return MaskStoppedAt(mask, "has an unfit rank");
  PF_ASSIGN_OR_RETURN(const MaskPredicate predicate, ReadMask(mask, contents));
  MaskForm form;
  for (size_t i = 0; i < predicate.size(); ++i) {
    const auto end = predicate.begin() + static_cast<std::ptrdiff_t>(i);
    const bool repeated = std::any_of(predicate.begin(), end, [&](const MaskAtom& earlier) {
      return SameLimit(earlier, predicate[i]);
    });
    if (!repeated) PF_RETURN_IF_ERROR(AddAtom(mask, predicate[i], rank, form));
  }
  return form;
}

}  // namespace pagefuse
