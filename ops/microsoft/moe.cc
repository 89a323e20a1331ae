// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/microsoft/moe.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <string_view>

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/linalg/activation.h"
#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/ops/kernels/rows/elementwise_hwy.h"
#include "pagefuse/ops/kernels/rows/rows_hwy.h"
#include "pagefuse/ops/onnx/element.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::microsoft_ops {
namespace {

// The experts of each token and their weights: [tokens, k].
struct Choices {
  std::vector<int64_t> experts;
  std::vector<double> weights;
};

// The k largest logits, the lower index first where two are equal.
std::vector<int64_t> Largest(const float* logits, int64_t count, int64_t k) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + k, order.end(), [&](int64_t a, int64_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
  });
  order.resize(static_cast<size_t>(k));
  return order;
}

// Weights of the chosen experts of token t.
void AppendWeights(const Moe& moe, int64_t t, const std::vector<int64_t>& chosen,
                   std::vector<double>& weights) {
  const float* logits = moe.router.data() + t * moe.experts;
  const size_t first = weights.size();
  if (moe.router_weights.present()) {
    for (int64_t e : chosen) weights.push_back(moe.router_weights.data()[t * moe.experts + e]);
  } else {
    const double max = *std::max_element(logits, logits + moe.experts);
    double sum = 0;
    for (int64_t e = 0; e < moe.experts; ++e) sum += std::exp(logits[e] - max);
    for (int64_t e : chosen) weights.push_back(std::exp(logits[e] - max) / sum);
  }
  const bool of_chosen =
      !moe.router_weights.present() && moe.weights == MoeWeights::kSoftmaxOfChosen;
  if (!of_chosen && !moe.attributes.normalizes) return;
  const double total = std::accumulate(weights.begin() + first, weights.end(), 0.0);
  for (size_t i = first; i < weights.size(); ++i) {
    weights[i] = total == 0 ? 0 : weights[i] / total;
  }
}

Choices Route(const Moe& moe) {
  Choices choices;
  for (int64_t t = 0; t < moe.tokens; ++t) {
    const std::vector<int64_t> chosen =
        Largest(moe.router.data() + t * moe.experts, moe.experts, moe.attributes.k);
    choices.experts.insert(choices.experts.end(), chosen.begin(), chosen.end());
    AppendWeights(moe, t, chosen, choices.weights);
  }
  return choices;
}

double Activate(MoeActivation activation, double x) {
  switch (activation) {
    case MoeActivation::kRelu:
      return std::max(x, 0.0);
    case MoeActivation::kGelu:
      return ApplyActivation(Activation::kGelu, x);
    case MoeActivation::kSilu:
      return ApplyActivation(Activation::kSilu, x);
    default:
      return x;
  }
}

double Swiglu(const MoeAttributes& a, double gate, double linear) {
  if (a.limit > 0) {
    gate = std::min<double>(gate, a.limit);
    linear = std::clamp<double>(linear, -a.limit, a.limit);
  }
  return gate / (1 + std::exp(-a.alpha * gate)) * (linear + a.beta);
}

// Element i of fc2's input from rows of fc1 and fc3, if there is one.
template <typename T>
double Hidden(const Moe& moe, const T* fc1, const T* fc3, int64_t i) {
  const MoeAttributes& a = moe.attributes;
  const double linear = fc3 != nullptr ? static_cast<double>(fc3[i]) : 1.0;
  if (a.activation != MoeActivation::kSwiglu) return Activate(a.activation, fc1[i]) * linear;
  switch (a.fusion) {
    case SwigluFusion::kInterleaved:
      return Swiglu(a, fc1[2 * i], fc1[2 * i + 1]);
    case SwigluFusion::kHalves:
      return Swiglu(a, fc1[i], fc1[moe.inter + i]);
    default:
      return Swiglu(a, fc1[i], linear);
  }
}

// x * W^T + bias in double.
std::vector<double> ReferenceProduct(const Moe& moe, int product, int64_t expert,
                                     const std::vector<double>& x) {
  const int64_t n = moe.columns(product);
  std::vector<double> y(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    if (moe.biases[product].present()) y[i] = moe.biases[product].data()[expert * n + i];
    for (size_t k = 0; k < x.size(); ++k) {
      y[i] += x[k] * moe.element(product, expert, i, static_cast<int64_t>(k));
    }
  }
  return y;
}

// Products of all choices, rows of one expert together.
class GroupedProducts {
 public:
  GroupedProducts(const Moe& moe, const Choices& choices, Scratch& scratch)
      : moe_(moe),
        choices_(choices),
        scratch_(scratch),
        groups_(GroupByExpert(choices.experts, moe.experts)) {}

  // y [tokens * k, n]: row r is made of row r / repeat of x.
  absl::Status Run(int product, const float* x, int64_t repeat, float* y) {
    const int64_t n = moe_.columns(product);
    const ExpertRows rows{x, repeat, y, product == 1 ? moe_.inter : moe_.hidden, n};
    PF_RETURN_IF_ERROR(GroupedProduct(
        groups_, rows,
        [&](int64_t expert, const RowsView& from, const OutputView& to, Scratch& memory) {
          return moe_.product(product, expert, from, to, memory);
        },
        scratch_));
    if (!moe_.biases[product].present()) return absl::OkStatus();
    for (size_t r = 0; r < choices_.experts.size(); ++r) {
      float* row = y + static_cast<int64_t>(r) * n;
      const float* bias = moe_.biases[product].data() + choices_.experts[r] * n;
      onnx_ops::AddRow({row, 1, bias, 1}, row, n);
    }
    return absl::OkStatus();
  }

 private:
  const Moe& moe_;
  const Choices& choices_;
  Scratch& scratch_;
  ExpertGroups groups_;
};

}  // namespace

absl::StatusOr<MoeAttributes> MoeAttributesOf(const Node& node) {
  MoeAttributes a;
  PF_ASSIGN_OR_RETURN(a.k, node.IntAttribute("k", 1));
  if (a.k < 1) return AttributeError(node, "k", StrCat("expected a positive number, got ", a.k));
  PF_ASSIGN_OR_RETURN(const std::string name, node.StringAttribute("activation_type", "relu"));
  const std::pair<std::string_view, MoeActivation> names[] = {
      {"relu", MoeActivation::kRelu},
      {"gelu", MoeActivation::kGelu},
      {"silu", MoeActivation::kSilu},
      {"identity", MoeActivation::kIdentity},
      {"swiglu", MoeActivation::kSwiglu}};
  const auto* found = std::find_if(std::begin(names), std::end(names),
                                   [&](const auto& n) { return n.first == name; });
  if (found == std::end(names)) {
    return AttributeError(
        node, "activation_type",
        StrCat("expected relu, gelu, silu, identity or swiglu, got \"", name, "\""));
  }
  a.activation = found->second;
  PF_ASSIGN_OR_RETURN(const int64_t fusion, node.IntAttribute("swiglu_fusion", 0));
  if (fusion < 0 || fusion > 2) {
    return AttributeError(node, "swiglu_fusion", StrCat("expected 0, 1 or 2, got ", fusion));
  }
  a.fusion = static_cast<SwigluFusion>(fusion);
  PF_ASSIGN_OR_RETURN(a.alpha, node.FloatAttribute("activation_alpha", 1.0f));
  PF_ASSIGN_OR_RETURN(a.beta, node.FloatAttribute("activation_beta", 0.0f));
  PF_ASSIGN_OR_RETURN(a.limit, node.FloatAttribute("swiglu_limit", 0.0f));
  if (!std::isfinite(a.limit)) a.limit = 0;
  PF_ASSIGN_OR_RETURN(const int64_t normalizes, node.IntAttribute("normalize_routing_weights", 0));
  a.normalizes = normalizes != 0;
  PF_ASSIGN_OR_RETURN(const int64_t mixer, node.IntAttribute("use_sparse_mixer", 0));
  if (mixer != 0) return AttributeError(node, "use_sparse_mixer", "is only supported as 0");
  return a;
}

int64_t Fc1Columns(const MoeAttributes& attributes, int64_t inter) {
  const bool fused =
      attributes.activation == MoeActivation::kSwiglu && attributes.fusion != SwigluFusion::kNone;
  return fused ? 2 * inter : inter;
}

absl::Status RunMoeReference(const Moe& moe, const TensorArg& output) {
  const Choices choices = Route(moe);
  std::vector<double> y(static_cast<size_t>(moe.tokens * moe.hidden));
  for (size_t r = 0; r < choices.experts.size(); ++r) {
    const int64_t token = static_cast<int64_t>(r) / moe.attributes.k;
    const int64_t expert = choices.experts[r];
    const float* row = moe.x.data() + token * moe.hidden;
    const std::vector<double> x(row, row + moe.hidden);
    const std::vector<double> fc1 = ReferenceProduct(moe, 0, expert, x);
    std::vector<double> fc3;
    if (moe.has_fc3) fc3 = ReferenceProduct(moe, 2, expert, x);
    std::vector<double> hidden(static_cast<size_t>(moe.inter));
    for (int64_t i = 0; i < moe.inter; ++i) {
      hidden[i] = Hidden(moe, fc1.data(), moe.has_fc3 ? fc3.data() : nullptr, i);
    }
    const std::vector<double> out = ReferenceProduct(moe, 1, expert, hidden);
    for (int64_t i = 0; i < moe.hidden; ++i) {
      y[token * moe.hidden + i] += choices.weights[r] * out[i];
    }
  }
  return onnx_ops::EncodeDoubles(y, output, 0);
}

absl::Status RunMoeGrouped(const Moe& moe, const TensorArg& output, Scratch& scratch) {
  const Choices choices = Route(moe);
  const auto rows = static_cast<int64_t>(choices.experts.size());
  const int64_t k = moe.attributes.k;
  std::vector<float> fc1(static_cast<size_t>(rows * moe.columns(0)));
  std::vector<float> fc3(static_cast<size_t>(moe.has_fc3 ? rows * moe.inter : 0));
  std::vector<float> hidden(static_cast<size_t>(rows * moe.inter));
  std::vector<float> out(static_cast<size_t>(rows * moe.hidden));
  GroupedProducts products(moe, choices, scratch);
  PF_RETURN_IF_ERROR(products.Run(0, moe.x.data(), k, fc1.data()));
  if (moe.has_fc3) PF_RETURN_IF_ERROR(products.Run(2, moe.x.data(), k, fc3.data()));
  ParallelFor(rows, moe.inter * 64, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* gate = fc1.data() + r * moe.columns(0);
      const float* linear = moe.has_fc3 ? fc3.data() + r * moe.inter : nullptr;
      for (int64_t i = 0; i < moe.inter; ++i) {
        hidden[r * moe.inter + i] = static_cast<float>(Hidden(moe, gate, linear, i));
      }
    }
  });
  PF_RETURN_IF_ERROR(products.Run(1, hidden.data(), 1, out.data()));
  ParallelFor(moe.tokens, k * moe.hidden * 8, [&](int64_t begin, int64_t end) {
    std::vector<float> sum(static_cast<size_t>(moe.hidden));
    for (int64_t t = begin; t < end; ++t) {
      std::fill(sum.begin(), sum.end(), 0.0f);
      for (int64_t c = t * k; c < (t + 1) * k; ++c) {
        onnx_ops::AddScaledRow(out.data() + c * moe.hidden, static_cast<float>(choices.weights[c]),
                               sum.data(), moe.hidden);
      }
      EncodeFromFloat(output.dtype, sum.data(), moe.hidden,
                      onnx_ops::ElementAt(output, t * moe.hidden))
          .IgnoreError();  // one of the op's types
    }
  });
  return absl::OkStatus();
}

}  // namespace pagefuse::microsoft_ops
