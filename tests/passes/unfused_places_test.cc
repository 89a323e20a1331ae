// SPDX-License-Identifier: Apache-2.0
// What the pipeline says of places that no fused op took up.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "must.h"

#include "pagefuse/ir/text/text.h"
#include "pagefuse/passes/explain/near_misses.h"
#include "pagefuse/passes/pipeline/pipeline.h"

namespace pagefuse {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

std::vector<std::string> Unfused(const std::string& body, PipelineOptions options = {}) {
  auto model =
      Must(ParseModel("<ir_version: 10, opset_import: [\"\" : 24, \"pagefuse\" : 1]>\n" + body));
  const auto report = Must(RunPipeline(model, options));
  std::vector<std::string> texts;
  for (const UnfusedPlace& match : report.unfused) texts.push_back(UnfusedText(match));
  return texts;
}

TEST(UnfusedPlaces, NameAttentionThatIsNotRecognised) {
  // Scores are halved by a tensor that is no constant.
  EXPECT_THAT(Unfused(R"(
    g (float[B, 2, S, 8] q, float[B, 2, S, 8] k, float[B, 2, S, 8] v, float[2, 1, 1] half)
        => (float[B, 2, S, 8] y) {
      kt = Transpose <perm = [0, 1, 3, 2]> (k)
      scores = MatMul (q, kt)
      scaled = Mul (scores, half)
      [soft] p = Softmax <axis = -1> (scaled)
      y = MatMul (p, v)
    })"),
              ElementsAre(AllOf(StartsWith("attention written out at node \"soft\" (Softmax)"),
                                HasSubstr("; nearest is attention"))));
}

TEST(UnfusedPlaces, PreferWhatAPassReadWhole) {
  // The cap bounds hidden scores too, so that they hide nothing.
  EXPECT_THAT(Unfused(R"(
    g (float[B, 2, S, 8] q, float[B, 2, S, 8] k, float[B, 2, S, 8] v, bool[B, 1, S, S] mask)
        => (float[B, 2, S, 8] y)
    <float low = {-10000000000.0}, float cap = {5.0}> {
      kt = Transpose <perm = [0, 1, 3, 2]> (k)
      scores = MatMul (q, kt)
      masked = Where (mask, scores, low)
      divided = Div (masked, cap)
      bounded = Tanh (divided)
      capped = Mul (bounded, cap)
      p = Softmax <axis = -1> (capped)
      y = MatMul (p, v)
    })"),
              ElementsAre(HasSubstr(
                  "nearest is attention: \"masked\": the soft cap comes after the mask")));
}

TEST(UnfusedPlaces, NameThePlainFormWhereAllOfItFits) {
  // By joined keys, which a cache of listed rows has too.
  EXPECT_THAT(Unfused(R"(
    g (float[B, 2, S, 8] q, float[B, 2, P, 8] past_k, float[B, 2, S, 8] k, float[B, 2, P, 8] past_v,
       float[B, 2, S, 8] v) => (float[B, 2, S, 8] y, float[B, 2, S, T] z) {
      keys = Concat <axis = 2> (past_k, k)
      values = Concat <axis = 2> (past_v, v)
      kt = Transpose <perm = [0, 1, 3, 2]> (keys)
      scores = MatMul (q, kt)
      p = Softmax <axis = -1> (scores)
      y = MatMul (p, values)
      [second] z = Neg (p)
    })"),
              ElementsAre(HasSubstr("nearest is attention-unmasked: \"p\" is read by node")));
}

TEST(UnfusedPlaces, SayWhyAttentionGotNoPages) {
  EXPECT_THAT(Unfused(R"(
    g (float[B, 2, S, 8] q, float[B, 2, S, 8] k, float[B, 2, S, 8] v) => (float[B, 2, S, 8] y) {
      [here] y = Attention (q, k, v)
    })"),
              ElementsAre("attention without pages at node \"here\" (Attention); nearest is "
                          "insert-paged-cache: node \"here\" (Attention): is not causal"));
}

TEST(UnfusedPlaces, CountPlacesThatAreLeftForTheSameReason) {
  EXPECT_THAT(Unfused(R"(
    g (float[B, 2, S, 8] q, float[B, 2, S, 8] k, float[B, 2, S, 8] v) => (float[B, 2, S, 8] y) {
      x = Attention (q, k, v)
      y = Attention (x, k, v)
    })"),
              ElementsAre(HasSubstr("(Attention), 2 of them; nearest is insert-paged-cache: ")));
}

TEST(UnfusedPlaces, SayThatThePassDidNotRun) {
  EXPECT_THAT(Unfused(R"(
    g (float[B, 2, S, 8] q, float[B, 2, S, 8] k, float[B, 2, S, 8] v) => (float[B, 2, S, 8] y) {
      y = Attention (q, k, v)
    })",
                      {.disabled = {"insert-paged-cache"}}),
              ElementsAre(HasSubstr("nearest is insert-paged-cache: it did not run")));
}

TEST(UnfusedPlaces, LeaveAttentionOpsAloneWhereNobodyWantsPages) {
  EXPECT_THAT(Unfused(R"(
    g (float[B, 2, S, 8] q, float[B, 2, S, 8] k, float[B, 2, S, 8] v) => (float[B, 2, S, 8] y) {
      y = Attention (q, k, v)
    })",
                      {.page = false}),
              IsEmpty());
}

TEST(UnfusedPlaces, NameANormInPieces) {
  // The mean runs over the first axis.
  EXPECT_THAT(Unfused(R"(
    g (float[4, 8] x) => (float[4, 8] y)
    <float two = {2.0}, float eps = {0.00001}, int64[1] first = {0}> {
      square = Pow (x, two)
      [mean] m = ReduceMean <keepdims = 1> (square, first)
      shifted = Add (m, eps)
      root = Sqrt (shifted)
      y = Div (x, root)
    })"),
              ElementsAre(AllOf(StartsWith("RMSNorm written out at node \"mean\" (ReduceMean); "
                                           "nearest is rms-norm"),
                                HasSubstr(": "))));
}

TEST(UnfusedPlaces, NameAGatedMlpWhoseWeightsAreComputed) {
  EXPECT_THAT(Unfused(R"(
    g (float[T, 8] x, float[8, 16] w_gate, float[8, 16] w_up) => (float[T, 16] y) {
      gate = MatMul (x, w_gate)
      act = Swish (gate)
      up = MatMul (x, w_up)
      y = Mul (act, up)
    })",
                      {.options = {}}),
              ElementsAre(AllOf(StartsWith("gated MLP at node \"y\" (Mul); nearest is gated-mlp"),
                                HasSubstr("constant(w_gate): \"w_gate\" is float[8, 16]"))));
}

// No op gates the products of experts: none is missing.
TEST(UnfusedPlaces, ExpectNothingOfGatedExperts) {
  EXPECT_THAT(Unfused(R"(
    g (float[T, 8] x, int64[T] experts, float[4, 16, 8] w_in) => (float[T, 8] y) {
      both = pagefuse.GroupedMatMul <transB = 1> (x, experts, w_in)
      gate, up = Split <axis = 1, num_outputs = 2> (both)
      act = Swish (gate)
      y = Mul (act, up)
    })"),
              IsEmpty());
}

TEST(UnfusedPlaces, TakeNoRouterForAttention) {
  EXPECT_THAT(Unfused(R"(
    g (float[T, 8] x, float[T, 4] e) => (float[T, 4] y)
    <float[8, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8,
                      1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8}> {
      logits = MatMul (x, w)
      p = Softmax <axis = -1> (logits)
      y = Mul (p, e)
    })"),
              IsEmpty());
}

}  // namespace
}  // namespace pagefuse
