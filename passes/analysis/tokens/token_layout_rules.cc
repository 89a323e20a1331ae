// SPDX-License-Identifier: Apache-2.0
// Rules for views, slices and joins over the token axis.
#include <algorithm>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/analysis/tokens/token_rules.h"

namespace pagefuse {
namespace {

Dim Product(const Shape& shape, int first, int last) {
  Dim product = 1;
  for (int axis = first; axis < last; ++axis) product = product * shape[axis];
  return product;
}

// How many times `whole` holds `part`, if that is a known number.
std::optional<int64_t> Times(const Dim& whole, const Dim& part) {
  if (ProvablyEqual(whole, part)) return 1;
  const auto a = whole.constant();
  const auto b = part.constant();
  return a && b && *b > 0 && *a % *b == 0 ? std::optional<int64_t>(*a / *b) : std::nullopt;
}

struct PlacedAxis {
  int axis = -1;
  int64_t per_token = 1;
};

// The axis of `to` with as many elements before it as axes [first, last] of `from`, which hold
// `per_token` places a token, and with whole tokens in it.
PlacedAxis SameAxis(const Shape& from, int first, int last, const Shape& to, int64_t per_token) {
  const Dim before = Product(from, 0, first);
  const Dim of_token = Product(from, last + 1, from.rank()) * Dim(per_token);
  for (int axis = 0; axis < to.rank(); ++axis) {
    // An axis of length 1 is not it: tokens are more than one.
    if (to[axis].constant() == 1 || !ProvablyEqual(Product(to, 0, axis), before)) continue;
    if (const auto times = Times(of_token, Product(to, axis + 1, to.rank()))) return {axis, *times};
  }
  return {};
}

// The shape of a view. Of an axis that is inferred (-1 behind sizes of the batch) no more may be
// known than that all elements are there: then its length is the one with which they are.
Shape WithKnownLengths(const RowsNode& node) {
  const Shape& to = node.output();
  const Dim elements = Product(node.shape(0), 0, node.rank(0));
  if (ProvablyEqual(Product(to, 0, to.rank()), elements)) return to;
  const TokenSources& sources = node.sources();
  for (int axis = 0; axis < to.rank(); ++axis) {
    if (to[axis].is_constant()) continue;
    for (const Dim& length : {sources.sequence, sources.batch, sources.batch * sources.sequence}) {
      std::vector<Dim> dims = to.dims();
      dims[axis] = length;
      const Shape whole(dims);
      if (ProvablyEqual(Product(whole, 0, whole.rank()), elements)) return whole;
    }
  }
  return to;
}

absl::StatusOr<TokenAxes> ViewRule(const RowsNode& node) {
  PF_RETURN_IF_ERROR(node.CheckFixedFrom(1));
  const Shape to = WithKnownLengths(node);
  if (auto axes = AxesOfView(node.shape(0), to, node.axes(0), node.sources().sequence)) {
    return *axes;
  }
  return node.Mixes(StrCat("no axis of ", node.output().ToString(), " is provably that of ",
                           node.shape(0).ToString(), " which runs over tokens"));
}

absl::StatusOr<TokenAxes> TransposeRule(const RowsNode& node) {
  std::vector<int64_t> order;
  for (int axis = node.rank(0) - 1; axis >= 0; --axis) order.push_back(axis);
  const auto perm = node.node().IntsAttribute("perm", order);
  if (!perm.ok() || static_cast<int>(perm->size()) != node.rank(0)) {
    return node.Mixes("its permutation does not fit");
  }
  const auto moved = [&](int axis) {
    return axis < 0 ? -1 : static_cast<int>(std::ranges::find(*perm, axis) - perm->begin());
  };
  return TokenAxes{moved(node.axes(0).batch), moved(node.axes(0).token), node.axes(0).per_token};
}

// Repeats along axes of length 1; an axis as long as batch or sequence runs over them from here on.
absl::StatusOr<TokenAxes> ExpandRule(const RowsNode& node) {
  PF_RETURN_IF_ERROR(node.CheckFixedFrom(1));
  const int shift = node.output().rank() - node.rank(0);
  TokenAxes axes = node.axes(0);
  if (axes.batch >= 0) axes.batch += shift;
  if (axes.token >= 0) axes.token += shift;
  for (int axis = 0; axis < node.output().rank(); ++axis) {
    const Dim& dim = node.output()[axis];
    const int own = axis - shift;
    if (dim.is_constant() || axes.contains(axis)) continue;
    if (own >= 0 && ProvablyEqual(node.shape(0)[own], dim)) continue;
    if (axes.token < 0 && ProvablyEqual(dim, node.sources().sequence)) {
      axes.token = axis;
    } else if (axes.batch < 0 && ProvablyEqual(dim, node.sources().batch)) {
      axes.batch = axis;
    } else if (axes.none() && ProvablyEqual(dim, node.sources().batch * node.sources().sequence)) {
      axes = {.batch = axis, .token = axis};
    } else {
      return node.Mixes(StrCat("it repeats \"", node.node().input(0)->name(), "\" ", dim.ToString(),
                               " times along axis ", axis));
    }
  }
  return axes;
}

absl::StatusOr<TokenAxes> ConcatRule(const RowsNode& node) {
  TokenAxes axes;
  for (int i = 0; i < node.num_inputs(); ++i) {
    PF_RETURN_IF_ERROR(node.CheckApart(i, node.Axis(node.Int("axis", 0))));
    PF_ASSIGN_OR_RETURN(axes, node.Joined(axes, node.axes(i)));
  }
  return axes;
}

absl::StatusOr<TokenAxes> SplitRule(const RowsNode& node) {
  PF_RETURN_IF_ERROR(node.CheckFixedFrom(1));
  PF_RETURN_IF_ERROR(node.CheckApart(0, node.Axis(node.Int("axis", 0))));
  return node.axes(0);
}

// Whole along the axes over tokens, whatever is cut elsewhere. (The row of the last token is no
// matter of this rule.)
absl::StatusOr<TokenAxes> SliceRule(const RowsNode& node) {
  PF_RETURN_IF_ERROR(node.CheckFixedFrom(1));
  const auto steps = node.Ints(4);
  const bool forward =
      !node.has(4) || (steps && std::ranges::all_of(*steps, [](int64_t s) { return s > 0; }));
  const TokenAxes axes = node.axes(0);
  for (int axis : {axes.batch, axes.token}) {
    if (axis < 0) continue;
    if (!forward) return node.Mixes("it may turn the order of tokens around");
    if (!ProvablyEqual(node.shape(0)[axis], node.output()[axis])) {
      return node.Mixes(StrCat("it cuts axis ", axis, " of \"", node.node().input(0)->name(), "\" ",
                               node.shape(0).ToString(), ", which runs over tokens, to ",
                               node.output()[axis].ToString()));
    }
  }
  return axes;
}

absl::StatusOr<TokenAxes> PadRule(const RowsNode& node) {
  PF_RETURN_IF_ERROR(node.CheckFixedFrom(1));
  const auto pads = node.Ints(1);
  if (!pads) return node.Mixes("what it pads is not known");
  std::vector<int64_t> padded;
  if (node.has(3)) {
    const auto listed = node.Ints(3);
    if (!listed) return node.Mixes("the axes that it pads are not known");
    padded = *listed;
  } else {
    for (int axis = 0; axis < node.rank(0); ++axis) padded.push_back(axis);
  }
  if (pads->size() != 2 * padded.size()) return node.Mixes("its pads do not fit its axes");
  for (size_t i = 0; i < padded.size(); ++i) {
    if ((*pads)[i] == 0 && (*pads)[i + padded.size()] == 0) continue;
    PF_RETURN_IF_ERROR(node.CheckApart(0, node.Axis(padded[i])));
  }
  return node.axes(0);
}

absl::StatusOr<TokenAxes> TileRule(const RowsNode& node) {
  PF_RETURN_IF_ERROR(node.CheckFixedFrom(1));
  const auto repeats = node.Ints(1);
  if (!repeats || static_cast<int>(repeats->size()) != node.rank(0)) {
    return node.Mixes("how often it repeats is not known");
  }
  for (int axis = 0; axis < node.rank(0); ++axis) {
    if ((*repeats)[axis] != 1) PF_RETURN_IF_ERROR(node.CheckApart(0, axis));
  }
  return node.axes(0);
}

// One axis over all tokens of the batch as two again.
std::optional<TokenAxes> Unfolded(const Shape& from, const Shape& to, TokenAxes axes,
                                  const Dim& sequence) {
  const Dim before = Product(from, 0, axes.token);
  const Dim of_token = Product(from, axes.token + 1, from.rank()) * Dim(axes.per_token);
  for (int axis = 0; axis + 1 < to.rank(); ++axis) {
    const auto times = Times(of_token, Product(to, axis + 2, to.rank()));
    if (!times || !ProvablyEqual(Product(to, 0, axis), before)) continue;
    if (ProvablyEqual(to[axis + 1], sequence * Dim(*times)))
      return TokenAxes{axis, axis + 1, *times};
  }
  return std::nullopt;
}

}  // namespace

std::optional<TokenAxes> AxesOfView(const Shape& from, const Shape& to, TokenAxes axes,
                                    const Dim& sequence) {
  const auto find = [&](int first, int last, int64_t per_token) {
    return SameAxis(from, first, last, to, per_token);
  };
  if (axes.none()) return axes;
  if (axes.token < 0) {
    const PlacedAxis batch = find(axes.batch, axes.batch, 1);
    if (batch.axis < 0 || batch.per_token != 1) return std::nullopt;
    return TokenAxes{batch.axis, -1};
  }
  const PlacedAxis token = find(axes.token, axes.token, axes.per_token);
  if (axes.batch < 0 || axes.flat()) {
    if (token.axis >= 0)
      return TokenAxes{axes.batch < 0 ? -1 : token.axis, token.axis, token.per_token};
    return axes.batch < 0 ? std::nullopt : Unfolded(from, to, axes, sequence);
  }
  const PlacedAxis batch = find(axes.batch, axes.batch, 1);
  if (batch.axis >= 0 && batch.per_token == 1 && token.axis >= 0) {
    return TokenAxes{batch.axis, token.axis, token.per_token};
  }
  if (axes.token != axes.batch + 1) return std::nullopt;
  const PlacedAxis joined = find(axes.batch, axes.token, axes.per_token);
  if (joined.axis < 0) return std::nullopt;
  return TokenAxes{joined.axis, joined.axis, joined.per_token};
}

const TokenRules& LayoutRules() {
  static const auto& rules = *new TokenRules{
      {".Reshape", ViewRule},   {".Flatten", ViewRule},  {".Squeeze", ViewRule},
      {".Unsqueeze", ViewRule}, {".Expand", ExpandRule}, {".Transpose", TransposeRule},
      {".Concat", ConcatRule},  {".Split", SplitRule},   {".Slice", SliceRule},
      {".Pad", PadRule},        {".Tile", TileRule},
  };
  return rules;
}

}  // namespace pagefuse
