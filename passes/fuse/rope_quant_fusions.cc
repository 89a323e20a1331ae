// IndexerQRopeQuant and InvRopeQuant, wherever a graph computes what they do.
#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_replace.h"

#include "pagefuse/ir/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/passes/fuse/fusion_parts.h"
#include "pagefuse/passes/fuse/fusions.h"

namespace pagefuse {
namespace {

// Rows that may differ where an exporter's logarithm rounds the exponent the other way.
constexpr ResultRule kCodes = {.rows = 0.04};
constexpr ResultRule kPackedCodes = {.rows = 0.04, .packed_codes = true};

bool IsCodeType(DataType type) {
  return type == DataType::kFloat8E4M3FN || type == DataType::kUint8;
}

std::string StorageOf(const Value& codes) {
  return codes.dtype() == DataType::kUint8 ? "uint8" : "float8e4m3fn";
}

std::string Prelude(const TableForm& form, int64_t width) {
  return absl::StrReplaceAll(form.prelude,
                             {{"@width", StrCat(width)}, {"@half", StrCat(width / 2)}});
}

bool SameRows(const Value& a, const Value& b) {
  return Rank(a) > 0 && Rank(b) > 0 && ProvablyEqual((*a.shape())[0], (*b.shape())[0]);
}

// As many rows, as far as the graph says: exporters give each input a symbol of its own where
// nothing in the graph joins them.
bool MayHaveSameRows(const Value& a, const Value& b) {
  if (SameRows(a, b)) return true;
  return Rank(a) > 0 && Rank(b) > 0 && (*a.shape())[0].symbol() && (*b.shape())[0].symbol();
}

// Values [T, heads] of float that scale something: what may be the weights' result.
std::vector<Value*> ScaledWeights(const FusionSearch& search, const Value& codes) {
  // Weights that the query's scale is not folded into share no node with the codes.
  const bool apart = codes.dtype() == DataType::kUint8;
  std::vector<Value*> found;
  for (Value* value : search.ComputedValues()) {
    const Node& node = *value->producer();
    if (!node.Is("Mul") && !node.Is("Div")) continue;
    if (value->dtype() == DataType::kFloat && Rank(*value) == 2 &&
        (apart ? MayHaveSameRows(*value, codes) : SameRows(*value, codes)) &&
        BackDim(*value, 1) == BackDim(codes, 2)) {
      found.push_back(value);
    }
  }
  return found;
}

std::vector<Value*> ScaleBytes(const FusionSearch& search, const Value& codes) {
  constexpr int64_t kCodesAByte = 2, kGroup = 32;
  std::vector<Value*> found;
  for (Value* value : search.ComputedValues()) {
    if (value->dtype() == DataType::kUint8 && Rank(*value) == 3 && SameRows(*value, codes) &&
        BackDim(*value, 2) == BackDim(codes, 2) &&
        BackDim(*value, 1) * kGroup == BackDim(codes, 1) * kCodesAByte) {
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

std::string IndexerText(const IndexerQuery& query, const TableForm& form, int64_t width,
                        float softmax_scale, float head_scale, int64_t interleaved,
                        int64_t offset) {
  const std::string outputs = StrCat("q_out, weights_out", query.scales ? ", q_scale" : "");
  return StrCat("(q, weights, ", form.formal, ") => (", outputs, ") { ", Prelude(form, width),
                outputs, " = pagefuse.IndexerQRopeQuant <format = \"", query.format,
                "\", softmax_scale = ", FloatText(softmax_scale),
                ", head_scale = ", FloatText(head_scale), ", interleaved = ", interleaved,
                ", rotary_offset = ", offset, ", fp8_storage = \"",
                query.scales ? "float8e4m3fn" : StorageOf(*query.codes),
                "\"> (positions, q, table, weights) }");
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

Draft IndexerDraft(const IndexerQuery& query, const TableForm& form, const BoundPorts& ports,
                   const ComputedRegion& region) {
  Draft draft;
  const Value& q = *ports.at("q");
  const auto width = TableWidth(form, ports);
  const int64_t size = BackDim(q, 1);
  if (!width || *width > size || !SameRows(q, *query.codes)) return draft;
  SetTableLimit(form, ports, draft);
  for (const auto& [softmax, head] : ScalePairs(FactorsOn(region, ports.at("weights")))) {
    for (int64_t interleaved : {1, 0}) {
      draft.texts.push_back(
          IndexerText(query, form, *width, softmax, head, interleaved, size - *width));
      if (*width == size) continue;
      draft.texts.push_back(IndexerText(query, form, *width, softmax, head, interleaved, 0));
    }
  }
  // The weights' result is multiplied in the op's order, or a unit or two away.
  constexpr double kProducts = 3e-7;
  draft.rules = {query.scales ? kPackedCodes : kCodes, {.rows = 0.04, .relative = kProducts}};
  if (query.scales) draft.rules.push_back(kCodes);
  return draft;
}

absl::StatusOr<bool> FuseIndexerQuery(FusionSearch& search, const IndexerQuery& query) {
  const int64_t heads = BackDim(*query.codes, 2);
  const int64_t size = BackDim(*query.codes, 1) * (query.scales ? 2 : 1);
  std::vector<OutputSpec> outputs = {{"q_out", query.codes}, {"weights_out", query.weights}};
  if (query.scales) outputs.push_back({"q_scale", query.scales});
  PortSpec weights = {.name = "weights",
                      .role = ProbeRole::kFactors,
                      .inner = true,
                      .fits = [heads](const Value& value) {
                        return IsRowType(value.dtype()) && Rank(value) == 2 &&
                               BackDim(value, 1) == heads;
                      }};
  PortSpec q = RowPort("q", 3, size);
  q.fits = [fits = q.fits, heads](const Value& value) {
    return fits(value) && BackDim(value, 2) == heads;
  };
  for (const TableForm& form : TableForms()) {
    std::vector<PortSpec> ports = {q, weights};
    ports.insert(ports.end(), form.ports.begin(), form.ports.end());
    PF_ASSIGN_OR_RETURN(const bool fused,
                        search.Fuse("fuse-IndexerQRopeQuant", outputs, ports,
                                    [&](const BoundPorts& bound, const ComputedRegion& region) {
                                      return IndexerDraft(query, form, bound, region);
                                    }));
    if (fused) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<bool> FuseIndexerQRopeQuant(FusionSearch& search, Value* output) {
  constexpr int64_t kSmallestHead = 16;
  if (!IsCodeType(output->dtype()) || Rank(*output) != 3 || BackDim(*output, 2) < 1 ||
      BackDim(*output, 1) < kSmallestHead) {
    return false;
  }
  for (Value* weights : ScaledWeights(search, *output)) {
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

namespace {

// The scales of codes [T, G, K]: floats [T, G, groups], or packed exponents [T, G, heads].
std::vector<Value*> GroupScales(const FusionSearch& search, const Value& codes) {
  std::vector<Value*> found;
  for (Value* value : search.ComputedValues()) {
    const bool typed = value->dtype() == DataType::kFloat || value->dtype() == DataType::kInt32;
    if (typed && Rank(*value) == 3 && SameRows(*value, codes) &&
        BackDim(*value, 2) == BackDim(codes, 2) && BackDim(*value, 1) > 0 &&
        BackDim(codes, 1) % BackDim(*value, 1) == 0) {
      found.push_back(value);
    }
  }
  return found;
}

Draft InvRopeDraft(const Value& codes, const Value& scales, const TableForm& form,
                   const BoundPorts& ports) {
  Draft draft;
  const Value& o = *ports.at("o");
  const auto width = TableWidth(form, ports);
  if (!width || *width > BackDim(o, 1) || !SameRows(o, codes)) return draft;
  SetTableLimit(form, ports, draft);
  constexpr int64_t kExponentsAWord = 4;
  const bool packed = scales.dtype() == DataType::kInt32;
  const int64_t group =
      packed ? BackDim(o, 1) / kExponentsAWord : BackDim(codes, 1) / BackDim(scales, 1);
  draft.texts = {StrCat("(o, ", form.formal, ") => (o_fp8, o_scale) { ", Prelude(form, *width),
                        "o_fp8, o_scale = pagefuse.InvRopeQuant <n_groups = ", BackDim(codes, 2),
                        ", quant_group_size = ", group, ", scale_format = \"",
                        packed ? "ue8m0_int32" : "float32", "\", fp8_storage = \"",
                        StorageOf(codes), "\"> (o, positions, table) }")};
  draft.rules = {kCodes, kCodes};
  return draft;
}

}  // namespace

absl::StatusOr<bool> FuseInvRopeQuant(FusionSearch& search, Value* output) {
  if (!IsCodeType(output->dtype()) || Rank(*output) != 3 || BackDim(*output, 2) < 1 ||
      BackDim(*output, 1) < 1) {
    return false;
  }
  const int64_t elements = BackDim(*output, 1) * BackDim(*output, 2);
  const PortSpec o = {
      .name = "o", .role = ProbeRole::kRows, .inner = true, .fits = [elements](const Value& value) {
        return IsRowType(value.dtype()) && Rank(value) == 3 &&
               BackDim(value, 1) * BackDim(value, 2) == elements;
      }};
  for (Value* scales : GroupScales(search, *output)) {
    for (const TableForm& form : TableForms()) {
      std::vector<PortSpec> ports = {o};
      ports.insert(ports.end(), form.ports.begin(), form.ports.end());
      PF_ASSIGN_OR_RETURN(const bool fused,
                          search.Fuse("fuse-InvRopeQuant", {{"o_fp8", output}, {"o_scale", scales}},
                                      ports, [&](const BoundPorts& bound, const ComputedRegion&) {
                                        return InvRopeDraft(*output, *scales, form, bound);
                                      }));
      if (fused) return true;
    }
  }
  return false;
}

}  // namespace pagefuse
