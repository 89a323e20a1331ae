// SPDX-License-Identifier: Apache-2.0
// HyperConnectionMix: how a layer reads from and writes to the streams of its residual, from the
// logits of a token (manifold-constrained hyper-connections, arXiv 2512.24880).
#include <algorithm>
#include <cmath>
#include <string>

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr Ports kIn({
    {"logits", "T", "[..., (2 + streams) * streams]"},
    {"scale", "T", "[3]: of the logits of pre, post and comb"},
    {"base", "T", "[(2 + streams) * streams]: added to them"},
});
constexpr Ports kOut({
    {"pre", "T", "[..., streams]"},
    {"post", "T", "[..., streams]"},
    {"comb", "T", "[..., streams, streams]"},
});

// Not looked up in templates: clang 14 takes no consteval call there.
constexpr int kLogits = kIn["logits"], kScale = kIn["scale"], kBase = kIn["base"];
constexpr int kPre = kOut["pre"], kPost = kOut["post"], kComb = kOut["comb"];
constexpr float kDefaultEpsilon = 1e-6f, kDefaultPost = 2;

struct Attributes {
  int64_t streams = 1, rounds = 1;
  float epsilon = kDefaultEpsilon, post_factor = kDefaultPost;

  int64_t columns() const { return (2 + streams) * streams; }
};

absl::StatusOr<Attributes> ReadAttributes(const Node& node) {
  Attributes a;
  PF_ASSIGN_OR_RETURN(a.streams, node.IntAttribute("streams", 1));
  PF_ASSIGN_OR_RETURN(a.rounds, node.IntAttribute("rounds", 1));
  PF_ASSIGN_OR_RETURN(a.epsilon, node.FloatAttribute("epsilon", kDefaultEpsilon));
  PF_ASSIGN_OR_RETURN(a.post_factor, node.FloatAttribute("post_factor", kDefaultPost));
  return a;
}

float Sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

// Row by row e^x over its sum, plus epsilon.
void SoftmaxRows(const Attributes& a, float* matrix) {
  for (int64_t i = 0; i < a.streams; ++i) {
    float* row = matrix + i * a.streams;
    const float largest = *std::max_element(row, row + a.streams);
    float sum = 0;
    for (int64_t j = 0; j < a.streams; ++j) sum += row[j] = std::exp(row[j] - largest);
    for (int64_t j = 0; j < a.streams; ++j) row[j] = row[j] / sum + a.epsilon;
  }
}

// Lines of `step` apart, each divided by its sum; its elements are `stride` apart.
void DivideBySums(const Attributes& a, int64_t step, int64_t stride, float* matrix) {
  for (int64_t i = 0; i < a.streams; ++i) {
    float* line = matrix + i * step;
    float sum = 0;
    for (int64_t j = 0; j < a.streams; ++j) sum += line[j * stride];
    for (int64_t j = 0; j < a.streams; ++j) line[j * stride] /= sum + a.epsilon;
  }
}

// Columns sum to one, then rows and columns in turn.
void Balance(const Attributes& a, float* matrix) {
  SoftmaxRows(a, matrix);
  DivideBySums(a, 1, a.streams, matrix);
  for (int64_t round = 1; round < a.rounds; ++round) {
    DivideBySums(a, a.streams, 1, matrix);
    DivideBySums(a, 1, a.streams, matrix);
  }
}

struct Token {
  const float* logits;
  float* pre;
  float* post;
  float* comb;
};

void Mix(const Attributes& a, const float* scale, const float* base, const Token& token) {
  const int64_t m = a.streams;
  for (int64_t i = 0; i < m; ++i) {
    token.pre[i] = Sigmoid(token.logits[i] * scale[0] + base[i]) + a.epsilon;
    token.post[i] = Sigmoid(token.logits[m + i] * scale[1] + base[m + i]) * a.post_factor;
  }
  for (int64_t i = 0; i < m * m; ++i) {
    token.comb[i] = token.logits[2 * m + i] * scale[2] + base[2 * m + i];
  }
  Balance(a, token.comb);
}

absl::Status Run(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Attributes a, ReadAttributes(*args.node));
  const float* logits = args.input(kLogits).as<float>();
  const float* scale = args.input(kScale).as<float>();
  const float* base = args.input(kBase).as<float>();
  float* pre = args.output(kPre).as<float>();
  float* post = args.output(kPost).as<float>();
  float* comb = args.output(kComb).as<float>();
  const int64_t m = a.streams;
  const int64_t work = 8 * a.rounds * m * m;  // bytes passed over for a token
  ParallelFor(args.input(kLogits).size() / a.columns(), work, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      Mix(a, scale, base, {logits + t * a.columns(), pre + t * m, post + t * m, comb + t * m * m});
    }
  });
  return absl::OkStatus();
}

// Each line along an axis divided by its sum.
std::string BalanceText(int step, const std::string& from, const std::string& to) {
  const char* axis = step % 2 == 0 ? "rows" : "columns";
  return StrCat("  sum_", step, " = ReduceSum <keepdims = 1> (", from, ", ", axis, ")\n  at_least_",
                step, " = Add (sum_", step, ", epsilon)\n  ", to, " = Div (", from, ", at_least_",
                step, ")\n");
}

absl::StatusOr<std::string> Decompose(const Node& node) {
  PF_ASSIGN_OR_RETURN(const Attributes a, ReadAttributes(node));
  const int64_t m = a.streams;
  std::string text = StrCat(
      R"(HyperConnectionMix (logits, scale, base) => (pre, post, comb) {
  sizes = Constant <value_ints: ints = [)",
      m, ", ", m, ", ", m * m, R"(]> ()
  square = Constant <value_ints: ints = [)",
      m, ", ", m, R"(]> ()
  rows = Constant <value_ints: ints = [-2]> ()
  columns = Constant <value_ints: ints = [-1]> ()
  epsilon = Constant <value_float: float = @epsilon> ()
  post_factor = Constant <value_float: float = @post_factor> ()
  pre_logits, post_logits, comb_logits = Split <axis = -1> (logits, sizes)
  pre_base, post_base, comb_base = Split <axis = 0> (base, sizes)
  pre_scale, post_scale, comb_scale = Split <axis = 0, num_outputs = 3> (scale)
  pre_scaled = Mul (pre_logits, pre_scale)
  pre_moved = Add (pre_scaled, pre_base)
  pre_open = Sigmoid (pre_moved)
  pre = Add (pre_open, epsilon)
  post_scaled = Mul (post_logits, post_scale)
  post_moved = Add (post_scaled, post_base)
  post_open = Sigmoid (post_moved)
  post = Mul (post_open, post_factor)
  lead = Shape <start = 0, end = -1> (logits)
  dims = Concat <axis = 0> (lead, square)
  comb_square = Reshape <allowzero = 1> (comb_logits, dims)
  base_square = Reshape (comb_base, square)
  comb_scaled = Mul (comb_square, comb_scale)
  comb_moved = Add (comb_scaled, base_square)
  weights = Softmax <axis = -1> (comb_moved)
  c_0 = Add (weights, epsilon)
)");
  const int64_t steps = 2 * a.rounds - 1;
  for (int step = 0; step < steps; ++step) {
    StrAppend(&text, BalanceText(step, StrCat("c_", step),
                                 step + 1 == steps ? "comb" : StrCat("c_", step + 1)));
  }
  return text + "}";
}

}  // namespace

OpDef HyperConnectionMixDef() {
  return OpDef("pagefuse", "HyperConnectionMix", /*since=*/1)
      .Doc(
          "From a token's logits: pre, by which a layer reads its streams, sigmoid + epsilon; post, "
          "by which it writes to them, sigmoid * post_factor; comb, by which the streams are mixed: "
          "softmax + epsilon, then columns divided by their sums + epsilon, and rows and columns in "
          "turn for the rounds after the first.")
      .Inputs(kIn)
      .Outputs(kOut)
      .RequiredAttr("streams", "parallel residual streams")
      .Within(1, 1024)
      .RequiredAttr("rounds", "of Sinkhorn's iteration")
      .Within(1, 4096)
      .Attr("epsilon", kDefaultEpsilon, "added to pre, to the softmax and to every sum")
      .Attr("post_factor", kDefaultPost, "of post")
      .Types("T", {DataType::kFloat})
      .Decomposition(Decompose)
      .AddKernel({.name = "reference", .run = Run});
}

}  // namespace pagefuse::pagefuse_ops
