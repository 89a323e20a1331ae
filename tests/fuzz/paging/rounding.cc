// SPDX-License-Identifier: Apache-2.0
#include "rounding.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "in_doubles.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse::fuzz {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float Largest(std::span<const float> row) {
  float largest = 1e-3F;
  for (const float x : row) {
    if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
  }
  return largest;
}

bool AreSame(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// As a part of the largest of them.
float Distance(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return kInfinity;
  const float largest = Largest(a);
  float distance = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (AreSame(a[i], b[i])) continue;
    const float apart = std::abs(a[i] - b[i]) / largest;
    distance = std::isnan(apart) ? kInfinity : std::max(distance, apart);
  }
  return distance;
}

// Every number of a matrix or a table moved by about its last bit.
Model Moved(const Model& model, uint32_t seed) {
  constexpr float kBit = 1e-6F;
  Model moved = model.Clone();
  std::mt19937 random(seed);
  for (Value* value : moved.graph->initializers()) {
    const Tensor& constant = *value->initializer();
    if (constant.dtype() != DataType::kFloat || constant.rank() == 0) continue;
    auto tensor = constant.Clone();
    if (!tensor.ok()) continue;
    for (float& x : tensor->mutable_values<float>()) {
      const auto step = static_cast<float>(random() % 2001) / 1000 - 1;
      if (std::isfinite(x)) x += x * kBit * step;
    }
    moved.graph->SetInitializer(value, *std::move(tensor));
  }
  return moved;
}

// How far the rows of a generation move if the model is another; nothing if that does not run.
float DistanceWith(const DecoderCase& decoder, Model model, const Generation& generation) {
  DecoderCase other{.model = std::move(model),
                    .feeds = decoder.feeds,
                    .presents = decoder.presents,
                    .logits = decoder.logits};
  auto exported = AsExported::Create(other);
  if (!exported.ok()) return 0;
  const auto rows = exported->Replay(generation);
  if (!rows.ok()) return 0;
  float distance = 0;
  for (size_t i = 0; i < rows->size(); ++i) {
    distance = std::max(distance, Distance(generation.logits[i], (*rows)[i]));
  }
  return distance;
}

}  // namespace

std::string CompareLogits(std::span<const float> expected, std::span<const float> found,
                          float allowed) {
  if (expected.size() != found.size()) {
    return StrCat("expected ", expected.size(), " columns, got ", found.size());
  }
  const float most = allowed * Largest(expected);
  for (size_t i = 0; i < expected.size(); ++i) {
    if (AreSame(expected[i], found[i]) || std::abs(expected[i] - found[i]) <= most) continue;
    return StrCat("column ", i, ": expected ", expected[i], ", got ", found[i]);
  }
  return "";
}

float RoundingOfTypes(const Model& model) {
  constexpr float kHalf = 4e-3F, kBfloat16 = 3e-2F;
  float rounding = kFloatRounding;
  for (const Value* value : model.graph->values()) {
    if (value->dtype() == DataType::kFloat16) rounding = std::max(rounding, kHalf);
    if (value->dtype() == DataType::kBfloat16) rounding = std::max(rounding, kBfloat16);
  }
  return rounding;
}

float RoundingOf(const DecoderCase& decoder, const Generation& generation) {
  constexpr uint32_t kMoves = 8;
  constexpr float kMultiple = 4;
  float distance = 0;
  for (uint32_t seed = 1; seed <= kMoves; ++seed) {
    distance = std::max(distance, DistanceWith(decoder, Moved(decoder.model, seed), generation));
  }
  // A past is a float, and its present would be a double.
  if (decoder.presents.empty()) {
    auto wide = testing::InDoubles(decoder.model);
    if (wide.ok()) {
      distance = std::max(distance, DistanceWith(decoder, *std::move(wide), generation));
    }
  }
  return kMultiple * distance;
}

}  // namespace pagefuse::fuzz
