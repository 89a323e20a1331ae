// SPDX-License-Identifier: Apache-2.0
#include "tiny_decoder.h"

#include <random>

#include "must.h"
#include <gtest/gtest.h>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text.h"

namespace pagefuse {
namespace {

constexpr std::string_view kText = R"(
<ir_version: 10, opset_import: ["" : 24]>
decoder (int64[B, S] input_ids) => (float[B, S, $columns] logits)
<int64[4] split = {0, 0, 2, 4}, int64[3] join = {0, 0, 8}>
{
  x = Gather (table, input_ids)
  q_all = MatMul (x, wq)
  k_all = MatMul (x, wk)
  v_all = MatMul (x, wv)
  q_heads = Reshape (q_all, split)
  k_heads = Reshape (k_all, split)
  v_heads = Reshape (v_all, split)
  q = Transpose <perm = [0, 2, 1, 3]> (q_heads)
  k = Transpose <perm = [0, 2, 1, 3]> (k_heads)
  v = Transpose <perm = [0, 2, 1, 3]> (v_heads)
  y = Attention <is_causal = 1, scale = 0.5$window> (q, k, v)
  rows = Transpose <perm = [0, 2, 1, 3]> (y)
  joined = Reshape (rows, join)
  hidden = Add (x, joined)
  logits = MatMul (hidden, head)
}
)";

Tensor RandomTensor(std::vector<int64_t> dims, std::mt19937& random) {
  std::normal_distribution<float> normal;
  Tensor tensor = *Tensor::Allocate(DataType::kFloat, std::move(dims));
  for (float& value : tensor.mutable_values<float>()) value = normal(random);
  return tensor;
}

}  // namespace

Model TinyDecoder(int64_t window, int64_t columns) {
  std::mt19937 random(31);
  std::string text(kText);
  const std::string attribute = window > 0 ? StrCat(", left_window_size = ", window - 1) : "";
  text.replace(text.find("$window"), 7, attribute);
  text.replace(text.find("$columns"), 8, StrCat(columns));
  // The weights are declared in the text and filled here.
  const std::pair<std::string, std::vector<int64_t>> weights[] = {{"table", {kTinyVocabulary, 8}},
                                                                  {"wq", {8, 8}},
                                                                  {"wk", {8, 8}},
                                                                  {"wv", {8, 8}},
                                                                  {"head", {8, columns}}};
  std::string declared;
  for (const auto& [name, dims] : weights) {
    StrAppend(&declared, ", float", DimsToString(dims), " ", name, " = {");
    const Tensor tensor = RandomTensor(dims, random);
    for (int64_t i = 0; i < tensor.size(); ++i) {
      StrAppend(&declared, i == 0 ? "" : ", ", tensor.values<float>()[i]);
    }
    declared += "}";
  }
  text.insert(text.find("{0, 0, 8}>") + 9, declared);
  return Must(ParseModel(text));
}

}  // namespace pagefuse
