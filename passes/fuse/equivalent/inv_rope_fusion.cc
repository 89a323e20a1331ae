// SPDX-License-Identifier: Apache-2.0
// Fuses InvRopeQuant wherever a graph computes its results.
#include <algorithm>
#include <optional>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/fuse/equivalent/cos_sin_tables.h"
#include "pagefuse/passes/fuse/equivalent/fusion_parts.h"
#include "pagefuse/passes/fuse/equivalent/fusions.h"

namespace pagefuse {
namespace {

// Elements of a token: the product of all dims but the first, -1 if one is no number.
int64_t TokenElements(const Value& value) {
  int64_t elements = 1;
  for (int axis = 1; axis < Rank(value); ++axis) {
    const int64_t dim = BackDim(value, axis);
    if (dim < 1) return -1;
    elements *= dim;
  }
  return elements;
}

// How the groups lie: [T, G, K], or [G, T, K] as kernels of grouped products take them.
struct GroupLayout {
  bool groups_first = false;
  int64_t groups = 0;
  int64_t width = 0;  // K
};

std::optional<GroupLayout> ReadLayout(const Value& codes) {
  const int64_t width = BackDim(codes, 1);
  if (!IsCodeType(codes.dtype()) || Rank(codes) < 3 || width < 1) return std::nullopt;
  if (BackDim(codes, 2) > 0) return GroupLayout{false, BackDim(codes, 2), width};
  if (Rank(codes) == 3 && BackDim(codes, 3) > 0) return GroupLayout{true, BackDim(codes, 3), width};
  return std::nullopt;
}

bool ComesFromAMaximum(const FusionSearch& search, Value* value) {
  const Upstream upstream = search.UpstreamOf({value});
  return std::any_of(upstream.nodes.begin(), upstream.nodes.end(), [](const Node* node) {
    return node->op_type().starts_with("Reduce") || node->op_type().ends_with("MaxPool");
  });
}

// What may be the scales of codes: floats, one a group of elements, or packed exponents, one a
// head; in any shape where the tokens come first.
std::vector<Value*> GroupScales(const FusionSearch& search, const Value& codes,
                                const GroupLayout& layout) {
  const int64_t elements = layout.groups * layout.width;
  std::vector<Value*> found;
  for (Value* value : search.ComputedValues()) {
    const bool typed = value->dtype() == DataType::kFloat || value->dtype() == DataType::kInt32;
    if (!typed || Rank(*value) < 2) continue;
    int64_t scales = TokenElements(*value);
    if (layout.groups_first) {
      const bool fits = Rank(*value) == 3 && BackDim(*value, 3) == layout.groups &&
                        ProvablyEqual((*value->shape())[1], (*codes.shape())[1]);
      scales = fits ? layout.groups * BackDim(*value, 1) : -1;
    } else if (!SameRows(*value, codes)) {
      continue;
    }
    if (scales > 0 && scales < elements && elements % scales == 0 &&
        ComesFromAMaximum(search, value)) {
      found.push_back(value);
    }
  }
  return found;
}

// The op's results under the shapes of the graph's.
std::string GroupViews(const Value& codes, const Value& scales, const GroupLayout& layout,
                       const Value& o) {
  if (layout.groups_first) {
    return "o_fp8 = Transpose <perm = [1, 0, 2]> (rows_out)  "
           "o_scale = Transpose <perm = [1, 0, 2]> (scales)  ";
  }
  const std::string first = UnflatText("o_fp8", "rows_out", codes, "o", o);
  const std::string second = UnflatText("o_scale", "scales", scales, "o", o);
  return first.empty() || second.empty() ? "" : first + second;
}

Draft InvRopeDraft(const Value& codes, const Value& scales, const GroupLayout& layout,
                   const CosSinTable& form, const BoundPorts& ports) {
  Draft draft;
  const Value& o = *ports.at("o");
  const auto width = TableWidth(ports);
  const std::string views = GroupViews(codes, scales, layout, o);
  if (!width || *width > BackDim(o, 1) || views.empty()) return draft;
  SetTableLimit(form, ports, draft);
  constexpr int64_t kExponentsAWord = 4;
  const bool packed = scales.dtype() == DataType::kInt32;
  const int64_t scales_a_group =
      layout.groups_first ? BackDim(scales, 1) : TokenElements(scales) / layout.groups;
  const int64_t group = packed ? BackDim(o, 1) / kExponentsAWord
                               : layout.width / std::max<int64_t>(scales_a_group, 1);
  if (group < 1) return draft;
  draft.texts = {StrCat("(o, ", form.formal, ") => (o_fp8, o_scale) { ", TablePrelude(form, *width),
                        FlatText("rows", "o", o, {BackDim(o, 2), BackDim(o, 1)}),
                        "rows_out, scales = pagefuse.InvRopeQuant <n_groups = ", layout.groups,
                        ", quant_group_size = ", group, ", scale_format = \"",
                        packed ? "ue8m0_int32" : "float32", "\", fp8_storage = \"",
                        StorageOf(codes), "\"> (rows, places, table)  ", views, "}")};
  draft.rules = {kExactCodes, kExactCodes};
  return draft;
}

}  // namespace

absl::StatusOr<bool> FuseInvRopeQuant(FusionSearch& search, Value* output) {
  const std::optional<GroupLayout> layout = ReadLayout(*output);
  if (!layout) return false;
  const int64_t elements = layout->groups * layout->width;
  const FusionPort o = InnerPort("o", ProbeRole::kRows, [elements](const Value& value) {
    return IsRowType(value.dtype()) && Rank(value) >= 3 && BackDim(value, 1) > 0 &&
           BackDim(value, 2) > 0 && BackDim(value, 1) * BackDim(value, 2) == elements;
  });
  for (Value* scales : GroupScales(search, *output, *layout)) {
    for (const CosSinTable& form : CosSinTables()) {
      std::vector<FusionPort> ports = {o};
      ports.insert(ports.end(), form.ports.begin(), form.ports.end());
      PF_ASSIGN_OR_RETURN(const bool fused,
                          search.Fuse("fuse-InvRopeQuant", {{"o_fp8", output}, {"o_scale", scales}},
                                      ports, [&](const BoundPorts& bound, const ComputedRegion&) {
                                        return InvRopeDraft(*output, *scales, *layout, form, bound);
                                      }));
      if (fused) return true;
    }
  }
  return false;
}

}  // namespace pagefuse
