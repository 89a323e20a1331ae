// SPDX-License-Identifier: Apache-2.0
// What MoE and QMoE share: routing, activations, and the two or three products of every expert.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"

#include "pagefuse/ops/kernels/linalg/expert_groups.h"
#include "pagefuse/ops/microsoft/tensor_values.h"

namespace pagefuse::microsoft_ops {

enum class MoeActivation { kRelu, kGelu, kSilu, kIdentity, kSwiglu };

// Where the gate and the linear part of SwiGLU come from.
enum class SwigluFusion {
  kNone,         // gate from fc1, linear part from fc3
  kInterleaved,  // fc1's columns in turn: gate, linear, gate, linear, ...
  kHalves,       // fc1's first half the gate, its second half the linear part
};

struct MoeAttributes {
  int64_t k = 1;  // experts a token
  MoeActivation activation = MoeActivation::kRelu;
  SwigluFusion fusion = SwigluFusion::kNone;
  float alpha = 1, beta = 0, limit = 0;  // of SwiGLU; limit 0: none
  bool normalizes = false;
};

// Reads and checks the attributes. InvalidArgument naming node and attribute.
absl::StatusOr<MoeAttributes> MoeAttributesOf(const Node& node);

// Columns of fc1 for `inter` columns of fc2's input.
int64_t Fc1Columns(const MoeAttributes& attributes, int64_t inter);

// How the weight of a chosen expert is made of router_probs, which are logits.
enum class MoeWeights { kSoftmaxOfAll, kSoftmaxOfChosen };

// One layer of experts; weights of product p (0 fc1, 1 fc2, 2 fc3) are [E, n, k].
struct Moe {
  MoeAttributes attributes;
  MoeWeights weights = MoeWeights::kSoftmaxOfAll;
  int64_t tokens = 0, hidden = 0, inter = 0, experts = 0;
  FloatValues x;               // [tokens, hidden]
  FloatValues router;          // [tokens, experts]
  FloatValues router_weights;  // [tokens, experts]: weights of the chosen ones, if present
  FloatValues biases[3];       // [experts, n]
  bool has_fc3 = false;
  // An element of a weight, for the reference.
  std::function<double(int product, int64_t expert, int64_t n, int64_t k)> element;
  // y = x * W^T for one expert.
  std::function<absl::Status(int product, int64_t expert, const RowsView& x, const OutputView& y,
                             Scratch& scratch)>
      product;

  int64_t columns(int product) const {
    if (product == 1) return hidden;
    return product == 2 ? inter : Fc1Columns(attributes, inter);
  }
};

// Both write `output` [tokens, hidden] in its type: the formula in double, and grouped products.
absl::Status RunMoeReference(const Moe& moe, const TensorArg& output);
absl::Status RunMoeGrouped(const Moe& moe, const TensorArg& output, Scratch& scratch);

}  // namespace pagefuse::microsoft_ops
