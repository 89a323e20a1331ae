// SPDX-License-Identifier: Apache-2.0
// Positions of random decoders: how they are computed, and what they become.
#include <cmath>
#include <numeric>

#include "decoder_text.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse::fuzz {
namespace {

std::string Counted(DecoderText& text, const std::string& ones, const std::string& attributes) {
  const std::string sums = text.Add("CumSum", {ones, text.graph.Int(1)}, attributes);
  return attributes.empty() ? text.Add("Sub", {sums, text.graph.Int(1)}) : sums;
}

std::string OnesOfTokens(DecoderText& text) {
  const std::string shape = text.Add("Concat", {text.Batch(), text.Length()}, "axis = 0");
  return text.Add("ConstantOfShape", {shape}, "value = int64[1] {1}");
}

std::string CountMask(DecoderText& text) {
  const std::string mask = text.MaskNumbers();
  std::string counted = Counted(text, mask, "");
  if (text.Is("positions", "cumsum_mask_where")) {
    const std::string hidden = text.Add("Equal", {mask, text.graph.Int(0)});
    counted = text.Add("Where", {hidden, text.graph.Int(1), counted});
  } else {
    counted = text.Add("Max", {counted, text.graph.Int(0)});
  }
  if (!text.has_past) return counted;
  return text.Add("Slice", {counted, text.PastLength(), text.Ints({INT64_MAX}), text.Ints({1})});
}

// As some decoders do it: tokens 0 do not count.
std::string CountIds(DecoderText& text) {
  const std::string ids = text.Add("Cast", {kIds}, "to = 7");
  const std::string counts =
      text.Add("Cast", {text.Add("Greater", {ids, text.graph.Int(0)})}, "to = 7");
  return text.Add("Mul", {Counted(text, counts, "exclusive = 1"), counts});
}

// [S], [1, S] or [B, S], from 0 or, where `*from_past`, from the past on.
std::string CountedPlaces(DecoderText& text, bool* from_past) {
  *from_past = true;
  if (text.Is("positions", "range")) return text.RowIndices();
  if (text.Is("positions", "cumsum_mask") || text.Is("positions", "cumsum_mask_where")) {
    return CountMask(text);
  }
  if (text.Is("positions", "table")) {
    std::vector<int64_t> places(DecoderText::kLongest);
    std::iota(places.begin(), places.end(), 0);
    const std::string table = text.graph.Integers("int64", {1, DecoderText::kLongest}, places);
    return text.Add("Slice", {table, text.PastLength(), text.Total(), text.Ints({1})});
  }
  if (text.Is("positions", "of_mask")) {
    const std::string all = text.CountRange(text.Ints({0}), text.SizeVector(text.Mask(), 1));
    return text.Add("Slice", {all, text.PastLength(), text.Ints({INT64_MAX}), text.Ints({0})});
  }
  *from_past = text.Is("positions", "restart");  // even after a past
  if (text.Is("positions", "range_float")) {
    const std::string length = text.Add("Cast", {text.Scalar(text.Length())}, "to = 1");
    const std::string range = text.Add("Range", {text.graph.Float(0), length, text.graph.Float(1)});
    return text.Add("Cast", {range}, "to = 7");
  }
  if (text.Is("positions", "cumsum_batch")) {  // counts sequences
    const std::string sums = text.Add("CumSum", {OnesOfTokens(text), text.graph.Int(0)});
    return text.Add("Sub", {sums, text.graph.Int(1)});
  }
  if (text.Is("positions", "cumsum_ones")) return Counted(text, OnesOfTokens(text), "");
  if (text.Is("positions", "cumsum_exclusive")) {
    return Counted(text, OnesOfTokens(text), "exclusive = 1");
  }
  if (text.Is("positions", "nonzero")) {
    return text.Add("NonZero",
                    {text.Add("ConstantOfShape", {text.Length()}, "value = int64[1] {1}")});
  }
  if (text.Is("positions", "cumsum_ids")) return CountIds(text);
  return text.CountRange(text.Ints({0}), text.Length());
}

// One row of positions without an axis for the batch. What is a row for each sequence stays one:
// sequences may differ; and the op wants rows.
bool IsVector(const DecoderText& text) {
  return text.Is("position_shape", "vector") && !text.Is("positions", "input") &&
         text.plan.Get("positions").find("cumsum") != 0 &&
         text.plan.Get("position_use").find("rotary_op") != 0;
}

std::string InShape(DecoderText& text, const std::string& positions) {
  if (IsVector(text)) return text.Add("Reshape", {positions, text.Ints({-1})});
  if (text.Is("position_shape", "batch")) {
    const std::string shape = text.Add("Concat", {text.Batch(), text.Length()}, "axis = 0");
    return text.Add("Expand", {positions, shape});
  }
  const std::string& how = text.plan.Get("positions");
  const bool vector = how.find("range") == 0 || how == "restart" || how == "of_mask";
  return vector ? text.Add("Unsqueeze", {positions, text.Ints({0})}) : positions;
}

std::vector<double> Frequencies(int64_t count) {
  std::vector<double> frequencies;
  for (int64_t i = 0; i < count; ++i) {
    frequencies.push_back(std::pow(20.0, -static_cast<double>(i) / static_cast<double>(count)));
  }
  return frequencies;
}

// [.., S, width]
std::string Angles(DecoderText& text, int64_t width) {
  if (!text.Is("position_use", "rotary_matmul")) {
    return text.Add("Mul", {text.PositionColumn(), text.graph.Floats({width}, Frequencies(width))});
  }
  // As the exporters have it: [1, width, 1] by [B, 1, S], turned around.
  const std::string floats = text.Add("Cast", {text.Positions()}, "to = 1");
  const std::string rows = text.Add("Unsqueeze", {floats, text.Ints({-2})});
  const std::string frequencies = text.graph.Floats({1, width, 1}, Frequencies(width));
  const std::string product = text.Add("MatMul", {frequencies, rows});
  return text.Add("Transpose", {product}, "perm = [0, 2, 1]");
}

struct Rotation {
  std::string cosine, sine;
};

// Tables [.., 1, S, D] beside heads [B, H, S, D], or [.., S, D/2] for the op.
Rotation MakeRotation(DecoderText& text, int64_t width, bool twice) {
  std::vector<std::string> tables;
  for (const bool cosine : {true, false}) {
    if (text.Is("position_use", "rotary_table")) {
      tables.push_back(
          text.Add("Gather", {AngleTable(text, cosine, width, twice), text.Positions()}));
    } else if (text.Is("position_use", "rotary_slice")) {
      tables.push_back(text.Add("Slice", {AngleTable(text, cosine, width, twice), text.PastLength(),
                                          text.Total(), text.Ints({0})}));
    } else {
      std::string angles = Angles(text, width);
      if (twice) angles = text.Add("Concat", {angles, angles}, "axis = -1");
      tables.push_back(text.Add(cosine ? "Cos" : "Sin", {angles}));
    }
  }
  return {tables[0], tables[1]};
}

// A sequence's tables stand before those of the heads.
std::string BesideHeads(DecoderText& text, const std::string& table) {
  const bool vector = text.Is("position_use", "rotary_slice") || IsVector(text);
  return vector ? table : text.Add("Unsqueeze", {table, text.Ints({1})});
}

Rotation HalvesOf(DecoderText& text, const std::string& x, int64_t width) {
  if (text.Is("rotate", "split")) {
    const auto parts = text.graph.AddMany("Split", 2, {x}, "axis = -1, num_outputs = 2");
    return {parts[0], parts[1]};
  }
  return {text.Add("Slice", {x, text.Ints({0}), text.Ints({width}), text.Ints({3})}),
          text.Add("Slice", {x, text.Ints({width}), text.Ints({INT64_MAX}), text.Ints({3})})};
}

std::string RotateWhole(DecoderText& text, const std::string& x, int64_t width) {
  const Rotation tables = MakeRotation(text, width / 2, true);
  const auto [low, high] = HalvesOf(text, x, width / 2);
  const std::string turned = text.Add("Concat", {text.Add("Neg", {high}), low}, "axis = -1");
  return text.Add("Add", {text.Add("Mul", {x, BesideHeads(text, tables.cosine)}),
                          text.Add("Mul", {turned, BesideHeads(text, tables.sine)})});
}

std::string RotatePairs(DecoderText& text, const std::string& x, int64_t width) {
  const Rotation tables = MakeRotation(text, width / 2, false);
  const std::string cosine = BesideHeads(text, tables.cosine);
  const std::string sine = BesideHeads(text, tables.sine);
  std::vector<std::string> pairs;
  for (const int64_t first : {0, 1}) {
    pairs.push_back(text.Add(
        "Slice", {x, text.Ints({first}), text.Ints({INT64_MAX}), text.Ints({3}), text.Ints({2})}));
  }
  const auto times = [&](int i, const std::string& table) {
    return text.Add("Mul", {pairs[i], table});
  };
  return text.Add("Concat",
                  {text.Add("Sub", {times(0, cosine), times(1, sine)}),
                   text.Add("Add", {times(1, cosine), times(0, sine)})},
                  "axis = -1");
}

std::string RotateByOp(DecoderText& text, const std::string& x, int64_t width) {
  const int64_t half = width / 2;
  if (text.Is("position_use", "rotary_op_ids")) {
    return text.Add("RotaryEmbedding", {x, AngleTable(text, true, half, false),
                                        AngleTable(text, false, half, false), text.Positions()});
  }
  const Rotation tables = MakeRotation(text, half, false);
  return text.Add("RotaryEmbedding", {x, tables.cosine, tables.sine});
}

}  // namespace

std::string AngleTable(DecoderText& text, bool cosine, int64_t width, bool twice) {
  std::vector<double> values;
  const std::vector<double> frequencies = Frequencies(width);
  for (int64_t position = 0; position < DecoderText::kLongest; ++position) {
    for (int half = 0; half < (twice ? 2 : 1); ++half) {
      for (const double frequency : frequencies) {
        const double angle = static_cast<double>(position) * frequency;
        values.push_back(cosine ? std::cos(angle) : std::sin(angle));
      }
    }
  }
  return text.graph.Floats({DecoderText::kLongest, twice ? 2 * width : width}, values);
}

std::string WritePlaces(DecoderText& text) {
  std::string positions;
  if (text.Is("positions", "input")) {
    positions = text.PositionInput();
    if (text.Is("position_type", "int32")) positions = text.Add("Cast", {positions}, "to = 7");
  } else {
    bool from_past = true;
    positions = CountedPlaces(text, &from_past);
    if (text.has_past && !from_past) positions = text.Add("Add", {positions, text.PastLength()});
  }
  return InShape(text, positions);
}

std::string WritePositions(DecoderText& text) {
  const std::string places = text.Places();
  const auto changed = [&](const std::string& op, int64_t by) {
    return text.Add(op, {places, text.graph.Int(by)});
  };
  if (text.Is("position_change", "plus2")) return changed("Add", 2);
  if (text.Is("position_change", "modulo")) return changed("Mod", 4);
  if (text.Is("position_change", "clip")) return changed("Min", 5);
  if (text.Is("position_change", "twice")) return changed("Mul", 2);
  if (text.Is("position_change", "half")) return changed("Div", 2);
  if (!text.Is("position_change", "reverse")) return places;
  const std::string last = text.Add("Sub", {text.Total(), text.graph.Int(1)});
  return text.Add("Abs", {text.Add("Sub", {last, places})});
}

std::string AddPositions(DecoderText& text, const std::string& x) {
  const auto learned = [&](int64_t rows) { return text.graph.Weights({rows, text.hidden}, 1); };
  if (text.Is("position_use", "learned") || text.Is("position_use", "learned_small")) {
    // As many rows as the vocabulary: nothing but their use tells the tables apart.
    const bool small = text.Is("position_use", "learned_small");
    const std::string table = learned(small ? DecoderText::kVocabulary : DecoderText::kLongest);
    return text.Add("Add", {x, text.Add("Gather", {table, text.Positions()})});
  }
  if (text.Is("position_use", "learned_slice")) {
    const std::string rows = text.Add(
        "Slice", {learned(DecoderText::kLongest), text.PastLength(), text.Total(), text.Ints({0})});
    return text.Add("Add", {x, rows});
  }
  if (text.Is("position_use", "sinusoid")) {
    const std::string angles = Angles(text, text.hidden / 2);
    const std::string waves =
        text.Add("Concat", {text.Add("Sin", {angles}), text.Add("Cos", {angles})}, "axis = -1");
    return text.Add("Add", {x, waves});
  }
  if (text.Is("position_use", "gate")) {
    const std::string factor = text.Add("Mul", {text.PositionColumn(), text.graph.Float(0.125)});
    return text.Add("Mul", {x, text.Add("Add", {factor, text.graph.Float(1)})});
  }
  return x;
}

std::string Rotate(DecoderText& text, const std::string& heads, int64_t width) {
  if (text.plan.Get("position_use").find("rotary") != 0) return heads;
  if (text.Is("position_use", "rotary_op") || text.Is("position_use", "rotary_op_ids")) {
    return RotateByOp(text, heads, width);
  }
  if (text.Is("rotate", "even_odd")) return RotatePairs(text, heads, width);
  if (!text.Is("rotate", "partial") || width < 8) {
    return RotateWhole(text, heads, width);
  }
  const int64_t half = width / 2;
  const Rotation parts = {
      text.Add("Slice", {heads, text.Ints({0}), text.Ints({half}), text.Ints({3})}),
      text.Add("Slice", {heads, text.Ints({half}), text.Ints({INT64_MAX}), text.Ints({3})})};
  return text.Add("Concat", {RotateWhole(text, parts.cosine, half), parts.sine}, "axis = -1");
}

}  // namespace pagefuse::fuzz
