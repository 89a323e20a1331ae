#include "pagefuse/ops/pagefuse/indexer/indexer_q_rope_quant_body.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/pagefuse/body_writer.h"

namespace pagefuse::pagefuse_ops {

GroupFormat IndexerQBody::format() const {
  if (mxfp4) return {GroupCodes::kE2M1, GroupScale::kUe8m0, kMxfp4Floor};
  return {GroupCodes::kE4M3, GroupScale::kPowerOfTwo, kCacheScaleFloor};
}

int64_t IndexerQBody::group() const { return mxfp4 ? kMxfp4Group : size; }

std::string IndexerQBody::Text() const {
  BodyWriter w;
  const std::string x = w.CastFrom("q", type, DataType::kFloat);
  const CosSinText table = WriteCosSin(w, "cos_sin", table_type, "positions");
  std::string rotated = WriteRope(
      w, x, table, {.layout = layout, .size = size, .heads = heads, .round_rotated = !is_plain});
  if (hadamard) rotated = WriteHadamardRotation(w, rotated, {-1, heads, size}, !is_plain);
  std::string weight = w.CastFrom("weights", weight_type, DataType::kFloat);
  if (is_plain) {
    w.Set("q_out", StrCat("Cast <to = ", static_cast<int>(type), "> (", rotated, ")"));
    weight = w.Call("Mul", {weight, w.FloatAttribute("softmax_scale")});
    w.Set("weights_out", StrCat("Mul (", weight, ", ", w.FloatAttribute("head_scale"), ")"));
    return w.Function("IndexerQRopeQuant", "positions, q, cos_sin, weights", "q_out, weights_out");
  }
  const GroupTextOptions options = {
      .format = format(), .lead = {-1, heads}, .size = size, .group = group(), .clip = false};
  const GroupText groups = WriteGroups(w, rotated, options);
  if (mxfp4) {
    w.Set("q_out", StrCat("Reshape (", groups.codes, ", ", w.Ints({-1, heads, size / 2}), ")"));
    const std::string biased =
        w.Cast(w.Call("Add", {groups.exponent, w.Float(127)}), DataType::kUint8);
    w.Set("q_scale", StrCat("Reshape (", biased, ", ", w.Ints({-1, heads, size / group()}), ")"));
  } else {
    const std::string codes =
        storage == DataType::kUint8 ? w.BitCast(groups.codes, DataType::kUint8) : groups.codes;
    w.Set("q_out", StrCat("Reshape (", codes, ", ", w.Ints({-1, heads, size}), ")"));
    weight = w.Call("Mul", {weight, w.Reshape(groups.scale, {-1, heads})});
  }
  weight = w.Call("Mul", {weight, w.FloatAttribute("softmax_scale")});
  w.Set("weights_out", StrCat("Mul (", weight, ", ", w.FloatAttribute("head_scale"), ")"));
  return w.Function("IndexerQRopeQuant", "positions, q, cos_sin, weights",
                    mxfp4 ? "q_out, weights_out, q_scale" : "q_out, weights_out");
}

}  // namespace pagefuse::pagefuse_ops
