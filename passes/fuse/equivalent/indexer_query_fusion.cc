// SPDX-License-Identifier: Apache-2.0
// Fuses IndexerQRopeQuant wherever a graph computes its results.
#include <algorithm>

#include "absl/strings/str_join.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/fuse/equivalent/attribute_numbers.h"
#include "pagefuse/passes/fuse/equivalent/cos_sin_tables.h"
#include "pagefuse/passes/fuse/equivalent/fusion_parts.h"
#include "pagefuse/passes/fuse/equivalent/fusions.h"
#include "pagefuse/passes/rewrite/pattern.h"

namespace pagefuse {
namespace {

constexpr ResultRule kPackedCodes = {.rows = 0.04, .packed_codes = true};

// As many rows, as far as the graph says: exporters give each input a symbol of its own where
// nothing in the graph joins them.
bool MayHaveSameRows(const Value& a, const Value& b) {
  if (SameRows(a, b)) return true;
  return Rank(a) > 0 && Rank(b) > 0 && (*a.shape())[0].symbol() && (*b.shape())[0].symbol();
}

// [T, heads], or with axes of length 1 after them.
bool IsPerHead(const Value& value, int64_t heads) {
  return EndsIn(value, {heads}) || EndsIn(value, {heads, 1});
}

// Floats, one a head, that scale something: what may be the weights' result.
std::vector<Value*> ScaledWeights(const FusionSearch& search, const Value& codes) {
  // Weights that the query's scale is not folded into share no node with the codes.
  const bool apart = codes.dtype() == DataType::kUint8;
  std::vector<Value*> found;
  for (Value* value : search.ComputedValues()) {
    const Node& node = *value->producer();
    if (!node.Is("Mul") && !node.Is("Div") && !IsViewNode(node)) continue;
    if (value->dtype() == DataType::kFloat && IsPerHead(*value, BackDim(codes, 2)) &&
        (apart ? MayHaveSameRows(*value, codes) : SameRows(*value, codes))) {
      found.push_back(value);
    }
  }
  return found;
}

std::vector<Value*> ScaleBytes(const FusionSearch& search, const Value& codes) {
  constexpr int64_t kCodesAByte = 2, kGroup = 32;
  const int64_t groups = BackDim(codes, 1) * kCodesAByte / kGroup;
  std::vector<Value*> found;
  for (Value* value : search.ComputedValues()) {
    const bool ends = EndsIn(*value, {BackDim(codes, 2), groups}) ||
                      EndsIn(*value, {BackDim(codes, 2), groups, 1});
    if (value->dtype() == DataType::kUint8 && ends && SameRows(*value, codes)) {
      found.push_back(value);
    }
  }
  return found;
}

struct IndexerQuery {
  std::string format;
  Value* codes = nullptr;
  Value* weights = nullptr;
  Value* scales = nullptr;  // of mxfp4
};

struct IndexerAttributes {
  float softmax_scale = 1;
  float head_scale = 1;
  int64_t interleaved = 1;
  int64_t rotary_offset = 0;
  int64_t hadamard = 0;
};

std::string IndexerText(const IndexerQuery& query, const CosSinTable& form, const BoundPorts& ports,
                        int64_t width, const IndexerAttributes& attributes) {
  const Value& q = *ports.at("q");
  const int64_t heads = BackDim(q, 2);
  const std::string outputs = StrCat("q_out, weights_out", query.scales ? ", q_scale" : "");
  const std::string results = StrCat("codes, scaled", query.scales ? ", exponents" : "");
  const std::vector<std::string> views = {
      UnflatText("q_out", "codes", *query.codes, "q", q),
      UnflatText("weights_out", "scaled", *query.weights, "q", q),
      query.scales ? UnflatText("q_scale", "exponents", *query.scales, "q", q) : " "};
  if (std::ranges::count(views, "") > 0) return "";
  return StrCat("(q, weights, ", form.formal, ") => (", outputs, ") { ", TablePrelude(form, width),
                FlatText("rows", "q", q, {heads, BackDim(q, 1)}),
                ReshapeText("factors", "weights", StrCat("[-1, ", heads, "]")), results,
                " = pagefuse.IndexerQRopeQuant <format = \"", query.format,
                "\", softmax_scale = ", FloatText(attributes.softmax_scale),
                ", head_scale = ", FloatText(attributes.head_scale),
                ", interleaved = ", attributes.interleaved,
                ", rotary_offset = ", attributes.rotary_offset,
                attributes.hadamard != 0 ? ", hadamard = 1" : "", ", fp8_storage = \"",
                query.scales ? "float8e4m3fn" : StorageOf(*query.codes),
                "\"> (places, rows, table, factors)  ", absl::StrJoin(views, ""), "}");
}

// The two factors of the weights, in the order in which they are multiplied.
std::vector<std::pair<float, float>> ScalePairs(const std::vector<float>& factors) {
  std::vector<std::pair<float, float>> pairs;
  for (size_t i = 0; i < factors.size(); ++i) {
    for (size_t j = i + 1; j < factors.size(); ++j) pairs.emplace_back(factors[i], factors[j]);
  }
  for (float factor : factors) pairs.emplace_back(factor, 1.0f);
  pairs.emplace_back(1.0f, 1.0f);
  return pairs;
}

// What the op may do to the channels, of which `width` are rotated by position.
std::vector<IndexerAttributes> Choices(const std::pair<float, float>& scales, int64_t size,
                                       int64_t width, bool transforms) {
  std::vector<IndexerAttributes> choices;
  for (const int64_t interleaved : {1, 0}) {
    for (const int64_t offset : {size - width, int64_t{0}}) {
      choices.push_back({scales.first, scales.second, interleaved, offset, 0});
      if (transforms) choices.push_back({scales.first, scales.second, interleaved, offset, 1});
      if (width == size) break;
    }
  }
  return choices;
}

Draft IndexerDraft(const IndexerQuery& query, const CosSinTable& form, const BoundPorts& ports,
                   const ComputedRegion& region) {
  Draft draft;
  const Value& q = *ports.at("q");
  const auto width = TableWidth(ports);
  const int64_t size = BackDim(q, 1);
  if (!width || *width > size || !SameRows(q, *query.codes)) return draft;
  SetTableLimit(form, ports, draft);
  const bool transforms = MayTransformRows(region, size);
  for (const auto& scales : ScalePairs(FactorsOn(region, ports.at("weights")))) {
    for (const IndexerAttributes& attributes : Choices(scales, size, *width, transforms)) {
      const std::string text = IndexerText(query, form, ports, *width, attributes);
      if (!text.empty()) draft.texts.push_back(text);
    }
  }
  // The weights' result is multiplied in the op's order, or a unit or two away.
  constexpr double kProducts = 3e-7;
  draft.rules = {query.scales ? kPackedCodes : kExactCodes, {.rows = 0.04, .relative = kProducts}};
  if (query.scales) draft.rules.push_back(kExactCodes);
  if (transforms) draft.rules[0].share = kTransformedShare;
  return draft;
}

absl::StatusOr<bool> FuseIndexerQuery(FusionSearch& search, const IndexerQuery& query) {
  const int64_t heads = BackDim(*query.codes, 2);
  const int64_t size = BackDim(*query.codes, 1) * (query.scales ? 2 : 1);
  std::vector<OutputSpec> outputs = {{"q_out", query.codes}, {"weights_out", query.weights}};
  if (query.scales) outputs.push_back({"q_scale", query.scales});
  FusionPort weights = InnerPort("weights", ProbeRole::kFactors, [heads](const Value& value) {
    return IsRowType(value.dtype()) && IsPerHead(value, heads);
  });
  const FusionPort q = RowPort("q", {heads, size});
  return AnyFuses(CosSinTables(), [&](const CosSinTable& form) {
    std::vector<FusionPort> ports = {q, weights};
    ports.insert(ports.end(), form.ports.begin(), form.ports.end());
    return search.Fuse("fuse-IndexerQRopeQuant", outputs, ports,
                       [&](const BoundPorts& bound, const ComputedRegion& region) {
                         return IndexerDraft(query, form, bound, region);
                       });
  });
}

// Whether channels are put together on the way to the codes, as a rotation puts its own.
bool MayBeRotated(const FusionSearch& search, Value* codes) {
  const std::vector<Node*> nodes = search.UpstreamOf({codes}).nodes;
  return std::ranges::any_of(
      nodes, [](const Node* node) { return node->Is("Concat") || node->Is("RotaryEmbedding"); });
}

}  // namespace

absl::StatusOr<bool> FuseIndexerQRopeQuant(FusionSearch& search, Value* output) {
  constexpr int64_t kSmallestHead = 16;
  if (!IsCodeType(output->dtype()) || Rank(*output) < 3 || BackDim(*output, 2) < 1 ||
      BackDim(*output, 1) < kSmallestHead) {
    return false;
  }
  const std::vector<Value*> scaled = ScaledWeights(search, *output);
  if (scaled.empty() && MayBeRotated(search, output)) {
    search.NoteMissedMatch("fuse-IndexerQRopeQuant", *output,
                           StrCat("no weights of the ", BackDim(*output, 2),
                                  " heads, float, are scaled beside the codes"));
  }
  for (Value* weights : scaled) {
    PF_ASSIGN_OR_RETURN(bool fused, FuseIndexerQuery(search, {"fp8", output, weights}));
    if (fused) return true;
    if (output->dtype() != DataType::kUint8) continue;
    for (Value* scales : ScaleBytes(search, *output)) {
      PF_ASSIGN_OR_RETURN(fused, FuseIndexerQuery(search, {"mxfp4", output, weights, scales}));
      if (fused) return true;
    }
  }
  return false;
}

}  // namespace pagefuse
