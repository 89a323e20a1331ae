// SPDX-License-Identifier: Apache-2.0
#include "decoder_text.h"

#include <algorithm>
#include <cmath>

#include "pagefuse/base/str_cat.h"

namespace pagefuse::fuzz {
namespace {

int64_t KvHeads(const Plan& plan) {
  const int64_t heads = plan.Number("heads");
  if (plan.Is("kv", "latent")) return heads;
  return plan.Is("kv_heads", "same") ? heads : std::min(heads, plan.Number("kv_heads"));
}

// GroupQueryAttention has one size, and so has what mixes heads.
int64_t ValueSize(const Plan& plan) {
  const bool one = plan.Get("attention").starts_with("gqa") || !plan.Is("mix_heads", "none");
  return one || plan.Is("value_size", "same") ? plan.Number("head_size")
                                              : plan.Number("value_size");
}

std::string Quoted(const std::string& dim) { return StrCat("\"", dim, "\""); }

}  // namespace

DecoderText::DecoderText(const Plan& chosen)
    : plan(chosen),
      graph({.weights = chosen.seed(), .constants_are_nodes = chosen.Is("constants", "nodes")}),
      has_past(chosen.Is("cache", "past")),
      layers(chosen.Number("layers")),
      heads(chosen.Number("heads")),
      kv_heads(KvHeads(chosen)),
      head_size(chosen.Number("head_size")),
      value_size(ValueSize(chosen)),
      hidden(chosen.Number("hidden")) {
  graph.Input(StrCat(plan.Get("ids_type"), "[", BatchDim(), ", ", LengthDim(), "]"), kIds);
}

std::string DecoderText::Once(const std::string& key, const std::function<std::string()>& make) {
  const auto known = made_.find(key);
  if (known != made_.end()) return known->second;
  const std::string name = make();
  return made_[key] = name;
}

std::string DecoderText::BatchDim() const {
  if (Is("batch", "symbol")) return "batch";
  return Is("batch", "as_length") ? LengthDim() : plan.Get("batch");
}

std::string DecoderText::LengthDim() const {
  return Is("length", "symbol") ? "seq" : plan.Get("length");
}

std::string DecoderText::PastDim(int64_t layer) const {
  return Is("past_names", "own") ? StrCat("past_", layer) : "past";
}

std::string DecoderText::TotalDim() const {
  if (Is("mask_length", "own")) return "total";
  return has_past ? Quoted(StrCat(PastDim(0), " + ", LengthDim())) : LengthDim();
}

std::string DecoderText::Mask() {
  return Once(kMask, [this] {
    const bool loose = Is("loose", "mask") || Is("loose", "both");
    return graph.Input(StrCat(plan.Get("mask_type"), "[", loose ? "mask_batch" : BatchDim(), ", ",
                              loose ? "mask_length" : TotalDim(), "]"),
                       kMask);
  });
}

std::string DecoderText::PositionInput() {
  return Once(kPositions, [this] {
    const bool loose = Is("loose", "positions") || Is("loose", "both");
    return graph.Input(StrCat(plan.Get("position_type"), "[", loose ? "position_batch" : BatchDim(),
                              ", ", loose ? "position_length" : LengthDim(), "]"),
                       kPositions);
  });
}

std::string DecoderText::Types() {
  return Once(kTypes, [this] {
    return graph.Input(StrCat("int64[", BatchDim(), ", ", LengthDim(), "]"), kTypes);
  });
}

std::string DecoderText::Mask4() {
  return Once(kMask4, [this] {
    return graph.Input(StrCat("float[", BatchDim(), ", 1, ", LengthDim(), ", ", TotalDim(), "]"),
                       kMask4);
  });
}

std::string DecoderText::PastKey(int64_t layer) {
  const std::string name = StrCat("past_key_values_", layer, "_key");
  return Once(name, [&] {
    return graph.Input(
        StrCat("float[", BatchDim(), ", ", kv_heads, ", ", PastDim(layer), ", ", head_size, "]"),
        name);
  });
}

std::string DecoderText::PastValue(int64_t layer) {
  const std::string name = StrCat("past_key_values_", layer, "_value");
  return Once(name, [&] {
    return graph.Input(
        StrCat("float[", BatchDim(), ", ", kv_heads, ", ", PastDim(layer), ", ", value_size, "]"),
        name);
  });
}

std::string DecoderText::MaskNumbers() {
  return Once("mask numbers", [this] {
    const std::string mask = Mask();
    return Is("mask_type", "int64") ? mask : Add("Cast", {mask}, "to = 7");
  });
}

std::string DecoderText::MaskOfNew() {
  return Once("mask of new", [this] {
    const std::string mask = MaskNumbers();
    if (!has_past) return mask;
    return Add("Slice", {mask, PastLength(), Ints({INT64_MAX}), Ints({1})});
  });
}

std::string DecoderText::SizeVector(const std::string& value, int64_t axis) {
  return Once(StrCat("vector of ", value, " ", axis), [&] {
    if (Is("sizes", "shape_start")) {
      return Add("Shape", {value}, StrCat("start = ", axis, ", end = ", axis + 1));
    }
    if (Is("sizes", "gather_vector")) {
      return Add("Gather", {Add("Shape", {value}), Ints({axis})}, "axis = 0");
    }
    return Add("Unsqueeze", {SizeScalar(value, axis), Ints({0})});
  });
}

std::string DecoderText::SizeScalar(const std::string& value, int64_t axis) {
  return Once(StrCat("scalar of ", value, " ", axis), [&] {
    if (Is("sizes", "gather_scalar")) {
      return Add("Gather", {Add("Shape", {value}), graph.Int(axis)}, "axis = 0");
    }
    return Scalar(SizeVector(value, axis));
  });
}

std::string DecoderText::Vector(const std::string& scalar) {
  return Add("Unsqueeze", {scalar, Ints({0})});
}

std::string DecoderText::Scalar(const std::string& vector) {
  return Once(StrCat("scalar ", vector), [&] { return Add("Squeeze", {vector, Ints({0})}); });
}

std::string DecoderText::PastLength() {
  return has_past ? SizeVector(PastKey(0), 2) : Once("zero", [this] { return Ints({0}); });
}

std::string DecoderText::Total() {
  return Once("total", [this] {
    if (Is("total", "mask")) return SizeVector(Mask(), 1);
    const std::string length = Length();
    return has_past ? Add("Add", {PastLength(), length}) : length;
  });
}

std::string DecoderText::CountRange(const std::string& from, const std::string& to) {
  return Add("Range", {Scalar(from), Scalar(to), graph.Int(1)});
}

std::string DecoderText::KeyIndices() {
  return Once("keys", [this] {
    return Add("Range", {graph.Int(0), Scalar(Total()), graph.Int(1)});
  });
}

std::string DecoderText::RowIndices() {
  return Once("rows", [this] {
    if (!has_past) return Add("Range", {graph.Int(0), Scalar(Length()), graph.Int(1)});
    return CountRange(PastLength(), Total());
  });
}

std::string DecoderText::Places() {
  return Once("places", [this] { return WritePlaces(*this); });
}

std::string DecoderText::Positions() {
  return Once("positions", [this] { return WritePositions(*this); });
}

std::string DecoderText::PositionColumn() {
  return Once("position column", [this] {
    const std::string floats = Add("Cast", {Positions()}, "to = 1");
    return Add("Unsqueeze", {floats, Ints({-1})});
  });
}

std::string DecoderText::Matrix(int64_t rows, int64_t columns) {
  return graph.Weights({rows, columns}, 1.2 / std::sqrt(static_cast<double>(rows)));
}

}  // namespace pagefuse::fuzz
