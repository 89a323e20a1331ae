// SPDX-License-Identifier: Apache-2.0
// Cases of MoE and QMoE.
#include "op_test.h"

namespace pagefuse::microsoft_ops {
namespace {

constexpr int64_t kTokens = 5, kExperts = 4, kHidden = 32, kInter = 16;

Tensor Small(std::vector<int64_t> dims, uint64_t seed, DataType type = DataType::kFloat) {
  return Random(type, std::move(dims), Normal{0, 0.5}, seed);
}

AttributeList Common(const std::string& activation, AttributeList more) {
  AttributeList all = {{"k", 2}, {"activation_type", activation}};
  for (auto& attribute : more) all.push_back(std::move(attribute));
  return all;
}

OpCase Plain(std::string name, const std::string& activation, int64_t fused = 1,
             AttributeList more = {}, DataType type = DataType::kFloat) {
  OpCase made{.name = std::move(name)};
  made.inputs = {Small({kTokens, kHidden}, 1, type), Small({kTokens, kExperts}, 2, type),
                 Small({kExperts, fused * kInter, kHidden}, 3, type),
                 Small({kExperts, fused * kInter}, 4, type),
                 Small({kExperts, kHidden, kInter}, 5, type)};
  made.attributes = Common(activation, std::move(more));
  return made;
}

Tensor Bytes(std::vector<int64_t> dims, uint64_t seed) {
  return Random(DataType::kUint8, std::move(dims), Uniform{-0.49, 255.49}, seed);
}

Tensor Scales(std::vector<int64_t> dims, uint64_t seed) {
  return Random(DataType::kFloat, std::move(dims), Uniform{0.01, 0.05}, seed);
}

struct Width {
  int64_t bits = 4, block = 0;
};

OpCase Quantised(std::string name, const std::string& activation, Width width, int64_t fused = 1,
                 AttributeList more = {}) {
  OpCase made{.name = std::move(name)};
  const int64_t n = fused * kInter;
  const auto packed = [&](int64_t k) { return k * width.bits / 8; };
  const auto scales = [&](int64_t rows, int64_t k, uint64_t seed) {
    if (width.block == 0) return Scales({kExperts, rows}, seed);
    return Scales({kExperts, rows, k / width.block}, seed);
  };
  made.inputs = {Small({1, kTokens, kHidden}, 1),
                 Small({kTokens, kExperts}, 2),
                 Bytes({kExperts, n, packed(kHidden)}, 3),
                 scales(n, kHidden, 4),
                 Small({kExperts, n}, 5),
                 Bytes({kExperts, kHidden, packed(kInter)}, 6),
                 scales(kHidden, kInter, 7),
                 Small({kExperts, kHidden}, 8)};
  made.attributes = Common(activation, std::move(more));
  made.attributes.emplace_back("expert_weight_bits", width.bits);
  made.attributes.emplace_back("block_size", width.block);
  return made;
}

OpCases Tolerant(OpCases cases) {
  return cases
      .Within(DataType::kFloat, {.rtol = 1e-3, .atol = 2e-4},
              "terms of hundreds cancel, and are summed in float")
      .Within(DataType::kFloat16, {.rtol = 2e-3, .atol = 2e-3}, "float sums, rounded to half");
}

}  // namespace

OpCases MoECases() {
  OpCase third = Plain("fc3", "silu");
  third.inputs.resize(8);
  third.inputs[5] = Small({kExperts, kHidden}, 6);
  third.inputs[6] = Small({kExperts, kInter, kHidden}, 7);
  third.inputs[7] = Small({kExperts, kInter}, 8);
  OpCase gated = third;
  gated.name = "swiglu_of_two";
  gated.attributes[1].second = std::string("swiglu");
  // Expert 1 doubles and adds, then goes on as it is.
  const OpCase by_hand{
      .name = "by_hand",
      .inputs = {Floats({1, 1}, {3}), Floats({1, 2}, {0, 1}), Floats({2, 1, 1}, {9, 2}),
                 Floats({2, 1}, {9, 1}), Floats({2, 1, 1}, {9, 1})},
      .attributes = {{"normalize_routing_weights", 1}},
      .outputs = {Floats({1, 1}, {7})}};
  const AttributeList fused = {{"swiglu_fusion", 1},
                               {"activation_alpha", 1.702f},
                               {"activation_beta", 1.0f},
                               {"swiglu_limit", 0.5f}};
  OpCase many = Plain("k", "relu");
  many.attributes[0].second = int64_t{5};
  return Tolerant(OpCases("com.microsoft.MoE")
                      .Add(by_hand)
                      .Add(Plain("relu", "relu"))
                      .Add(Plain("gelu", "gelu", 1, {{"normalize_routing_weights", 1}}))
                      .Add(Plain("swiglu_in_turn", "swiglu", 2, fused))
                      .Add(Plain("swiglu_by_halves", "swiglu", 2, {{"swiglu_fusion", 2}}))
                      .Add(third)
                      .Add(gated)
                      .Add(Plain("half", "silu", 1, {}, DataType::kFloat16))
                      .Rejects(many, "expected at most 4, got 5")
                      .Rejects(Plain("swiglu", "swiglu"), "needs fc3")
                      .Rejects(Plain("tanh", "tanh"), "expected relu, gelu"));
}

OpCases QMoECases() {
  OpCase zeros = Quantised("zero_points", "relu", {4, 16});
  zeros.inputs.resize(14);
  zeros.inputs[11] = Bytes({kExperts, kInter, 1}, 9);
  zeros.inputs[12] = Bytes({kExperts, kHidden, 1}, 10);
  OpCase chosen = Quantised("router_weights", "silu", {8, 0});
  chosen.inputs.resize(15);
  chosen.inputs[14] = Random(DataType::kFloat, {kTokens, kExperts}, Uniform{0, 1}, 11);
  OpCase third = Quantised("fc3", "silu", {4, 0});
  third.inputs.push_back(Bytes({kExperts, kInter, kHidden / 2}, 9));
  third.inputs.push_back(Scales({kExperts, kInter}, 10));
  OpCase unscaled = Quantised("scales", "relu", {4, 0});
  unscaled.inputs[3] = Tensor();
  return Tolerant(
      OpCases("com.microsoft.QMoE")
          .Add(Quantised("rows_of_nibbles", "relu", {4, 0}))
          .Add(Quantised("blocks_of_nibbles", "gelu", {4, 16}))
          .Add(Quantised("rows_of_bytes", "silu", {8, 0}))
          .Add(Quantised("blocks_of_bytes", "swiglu", {8, 16}, 2, {{"swiglu_fusion", 1}}))
          .Add(zeros)
          .Add(chosen)
          .Add(third)
          .Rejects(unscaled, "comes without its scales")
          .Rejects(Quantised("bits", "relu", {2, 0}), "expected 4 or 8, got 2"));
}

}  // namespace pagefuse::microsoft_ops
