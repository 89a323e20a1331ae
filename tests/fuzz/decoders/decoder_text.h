// SPDX-License-Identifier: Apache-2.0
// A random decoder while it is written: its graph, its sizes, and the inputs that it has so far.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "plan.h"
#include "text_graph.h"

namespace pagefuse::fuzz {

// Names of inputs by what they are, before they are renamed.
inline constexpr const char* kIds = "input_ids";
inline constexpr const char* kMask = "attention_mask";
inline constexpr const char* kPositions = "position_ids";
inline constexpr const char* kTypes = "token_type_ids";
inline constexpr const char* kMask4 = "causal_mask";

class DecoderText {
 public:
  explicit DecoderText(const Plan& plan);

  const Plan& plan;
  TextGraph graph;
  const bool has_past;
  const int64_t layers, heads, kv_heads, head_size, value_size, hidden;
  static constexpr int64_t kVocabulary = 30;
  static constexpr int64_t kLongest = 32;  // rows of tables over positions

  bool Is(std::string_view feature, std::string_view option) const {
    return plan.Is(feature, option);
  }
  // Shorter to write than graph.Add.
  std::string Add(const std::string& op, const std::vector<std::string>& inputs,
                  const std::string& attributes = "") {
    return graph.Add(op, inputs, attributes);
  }
  std::string Ints(const std::vector<int64_t>& values) { return graph.Ints(values); }

  // Inputs, declared when they are first read.
  std::string Mask();   // [B, T], of the plan's type
  std::string Types();  // [B, S] int64
  std::string Mask4();  // [B, 1, S, T] float, added to scores
  std::string PastKey(int64_t layer);
  std::string PastValue(int64_t layer);
  std::string PositionInput();

  // The mask as int64, and that of the new tokens alone [B, S].
  std::string MaskNumbers();
  std::string MaskOfNew();

  // Sizes as int64 [1] and as int64 [].
  std::string SizeVector(const std::string& value, int64_t axis);
  std::string SizeScalar(const std::string& value, int64_t axis);
  std::string Vector(const std::string& scalar);
  std::string Scalar(const std::string& vector);
  std::string Batch() { return SizeVector(kIds, 0); }
  std::string Length() { return SizeVector(kIds, 1); }
  std::string PastLength();  // [1]; 0 without a past
  std::string Total();       // [1]
  std::string KeyIndices();  // [T]: 0, 1, ...
  std::string RowIndices();  // [S]: the places of the new tokens
  std::string CountRange(const std::string& from, const std::string& to);  // both [1]

  // Places of the new tokens, [S], [1, S] or [B, S] by the plan, and the positions that they
  // become (positions.cc).
  std::string Places();
  std::string Positions();
  // Positions as float [.., S, 1], one rank more.
  std::string PositionColumn();

  // Dims as the text has them.
  std::string BatchDim() const;
  std::string LengthDim() const;
  std::string TotalDim() const;
  std::string PastDim(int64_t layer) const;

  std::string Matrix(int64_t rows, int64_t columns);

 private:
  std::string Once(const std::string& key, const std::function<std::string()>& make);

  std::map<std::string, std::string> made_;
};

// positions.cc
std::string WritePlaces(DecoderText& text);
std::string WritePositions(DecoderText& text);
// What positions add to embeddings `x` [B, S, hidden], if anything.
std::string AddPositions(DecoderText& text, const std::string& x);
// Rotates heads [B, H, S, width] as the plan says; the heads themselves if nothing rotates.
std::string Rotate(DecoderText& text, const std::string& heads, int64_t width);
// Cos or sin of every position, [kLongest, width].
std::string AngleTable(DecoderText& text, bool cosine, int64_t width, bool twice);

// masks.cc: masks of attention scores [B, H, S, T].
struct ScoreMask {
  std::string visible;                // bool, or ""
  std::vector<std::string> additive;  // added to scores, one after the other
  bool causal_attribute = false;      // left to is_causal of the op
};
ScoreMask WriteMask(DecoderText& text, int64_t layer);
std::string LowNumber(DecoderText& text);

// attention.cc
std::string WriteAttention(DecoderText& text, const std::string& x, int64_t layer);
std::string WriteNorm(DecoderText& text, const std::string& x, int64_t width);

// logits.cc
void WriteLogits(DecoderText& text, const std::string& x, const std::string& table);

}  // namespace pagefuse::fuzz
