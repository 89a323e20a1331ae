// SPDX-License-Identifier: Apache-2.0
// Runs one after the other in one session: what the executor keeps of a run must not show in the next.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/ops/registry/registry.h"
#include "pagefuse/ops/schema/contents_read.h"
#include "pagefuse/runtime/session.h"

namespace pagefuse {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Dims = std::vector<int64_t>;

std::unique_ptr<Session> MakeSession(const std::string& text) {
  absl::StatusOr<Model> model = ParseModel(text);
  EXPECT_TRUE(model.ok()) << model.status();
  auto session = Session::Create(*std::move(model), {.optimise = false, .load_passes = false});
  EXPECT_TRUE(session.ok()) << session.status();
  return session.ok() ? *std::move(session) : nullptr;
}

Tensor Counted(Dims dims) {
  Tensor tensor = *Tensor::Allocate(DataType::kFloat, std::move(dims));
  float next = 1;
  for (float& value : tensor.mutable_values<float>()) value = next++;
  return tensor;
}

TEST(RepeatedRuns, ShapesFollowContentsThatChange) {
  const std::unique_ptr<Session> session = MakeSession(R"(<ir_version: 10, opset_import: ["" : 20]>
    g (float[6] x, int64[2] shape, int64[1] count) => (float[] y, float[] z) {
      folded = Reshape (x, shape)
      y = Neg (folded)
      part, order = TopK (x, count)
      z = Neg (part)
    })");
  for (const auto& [rows, count] : {std::pair<int64_t, int64_t>{2, 3}, {3, 3}, {3, 1}, {2, 3}}) {
    const auto outputs = session->Run({{"x", Counted({6})},
                                       {"shape", Tensor::Of<int64_t>({2}, {rows, -1})},
                                       {"count", Tensor::Of<int64_t>({1}, {count})}});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    EXPECT_EQ((*outputs)[0].dims(), (Dims{rows, 6 / rows}));
    EXPECT_EQ((*outputs)[0].values<float>()[5], -6);
    EXPECT_EQ((*outputs)[1].dims(), Dims{count});
    EXPECT_EQ((*outputs)[1].values<float>()[0], -6);
  }
}

TEST(RepeatedRuns, ShapesFollowContentsOfAnySize) {
  const std::unique_ptr<Session> session = MakeSession(R"(<ir_version: 10, opset_import: ["" : 20]>
    g (int64[N] x) => (int64[] y) { found = NonZero (x)  y = Neg (found) })");
  for (const int64_t size : {10, 2000}) {
    for (const int64_t ones : {3, 5, 0, 3}) {
      std::vector<int64_t> x(static_cast<size_t>(size), 0);
      std::fill(x.end() - ones, x.end(), 1);
      const auto outputs = session->Run({{"x", Tensor::Of<int64_t>({size}, x)}});
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      EXPECT_EQ((*outputs)[0].dims(), (Dims{1, ones}));
    }
  }
}

TEST(RepeatedRuns, AnErrorLeavesNothingBehind) {
  const std::unique_ptr<Session> session = MakeSession(R"(<ir_version: 10, opset_import: ["" : 20]>
    g (float[6] x, int64[2] shape, int64[N] rows) => (float[] y) {
      folded = Reshape (x, shape)
      negative = Neg (folded)
      chosen = Gather (negative, rows)
      y = Abs (chosen)
    })");
  const auto run = [&](int64_t rows, const std::vector<int64_t>& chosen) {
    return session->Run(
        {{"x", Counted({6})},
         {"shape", Tensor::Of<int64_t>({2}, {rows, 6 / rows})},
         {"rows", Tensor::Of<int64_t>({static_cast<int64_t>(chosen.size())}, chosen)}});
  };
  const auto expect_dims = [&](const absl::StatusOr<std::vector<Tensor>>& outputs, Dims dims) {
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    EXPECT_EQ((*outputs)[0].dims(), dims);
    EXPECT_EQ((*outputs)[0].values<float>()[0], 1);
  };
  for (int round = 0; round < 2; ++round) {
    expect_dims(run(2, {0, 1}), {2, 3});
    // Shapes are as before; the value is not.
    EXPECT_THAT(std::string(run(2, {0, 2}).status().message()), HasSubstr("out of range"));
    expect_dims(run(2, {0, 1}), {2, 3});
    // Fails after other shapes were inferred, before and behind.
    EXPECT_FALSE(run(3, {0, 3}).ok());
    expect_dims(run(2, {0, 1}), {2, 3});
    EXPECT_FALSE(session
                     ->Run({{"x", Counted({6})},
                            {"shape", Tensor::Of<int64_t>({2}, {5, 5})},
                            {"rows", Tensor::Of<int64_t>({1}, {0})}})
                     .ok());
    expect_dims(run(3, {0}), {1, 2});
  }
}

TEST(RepeatedRuns, AnInputThatIsNotFedAgainHasItsInitialiser) {
  const std::unique_ptr<Session> session = MakeSession(R"(<ir_version: 10, opset_import: ["" : 20]>
    g (float[N] x, float[2] w) => (float[] y) <float[2] w = {10, 20}> { y = Concat <axis = 0> (x, w) })");
  const Tensor x = Counted({1});
  for (int round = 0; round < 2; ++round) {
    EXPECT_THAT((*session->Run({{"x", x}}))[0].values<float>(), ElementsAre(1, 10, 20));
    const Tensor w = Tensor::Of<float>({2}, {4, 5});
    EXPECT_THAT((*session->Run({{"x", x}, {"w", w}}))[0].values<float>(), ElementsAre(1, 4, 5));
  }
}

TEST(RepeatedRuns, NothingIsKeptOfFeedsAndOutputs) {
  const std::unique_ptr<Session> session = MakeSession(R"(<ir_version: 10, opset_import: ["" : 20]>
    g (float[N] x, int64[1] shape) => (float[] y) { flat = Reshape (x, shape)  y = Neg (flat) })");
  const Tensor x = Counted({8});
  const Tensor shape = Tensor::Of<int64_t>({1}, {-1});
  const Tensor wrong = Tensor::Of<int64_t>({1}, {3});
  for (const Tensor& asked : {shape, wrong}) {
    const auto outputs = session->Run({{"x", x}, {"shape", asked}});
    EXPECT_EQ(x.buffer().use_count(), 1);
    EXPECT_EQ(outputs.ok(), asked.IdenticalTo(shape));
  }
}

TEST(RepeatedRuns, FeedsOfWrongShapesAreRefusedAgain) {
  const std::unique_ptr<Session> session = MakeSession(R"(<ir_version: 10, opset_import: ["" : 20]>
    g (float[N, 2] x, float[N] y) => (float[] z) { s = ReduceSum <keepdims = 0> (x)  z = Add (s, y) })");
  for (int round = 0; round < 2; ++round) {
    EXPECT_TRUE(session->Run({{"x", Counted({3, 2})}, {"y", Counted({3})}}).ok());
    for (int time = 0; time < 2; ++time) {
      const absl::Status status =
          session->Run({{"x", Counted({3, 2})}, {"y", Counted({4})}}).status();
      EXPECT_EQ(StdView(status.message()),
                "input \"y\": expected float[N] with N = 3 as in other inputs, got float[4]");
    }
  }
}

// What Loop hands to its graph has other sizes in each turn.
TEST(RepeatedRuns, GraphsOfNodesSeeOtherShapesInEachTurn) {
  const std::unique_ptr<Session> session = MakeSession(R"(<ir_version: 10, opset_import: ["" : 20]>
    g (float[N] x, int64 count) => (float[] y) <bool on = {1}> {
      y = Loop (count, on, x) <body = turn (int64 i, bool go, float[M] before) => (bool more, float[] after) {
        more = Identity (go)
        negative = Neg (before)
        after = Concat <axis = 0> (before, negative)
      }>
    })");
  for (const int64_t count : {2, 3, 2}) {
    const auto outputs =
        session->Run({{"x", Counted({1})}, {"count", Tensor::Scalar<int64_t>(count)}});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    ASSERT_EQ((*outputs)[0].dims(), Dims{int64_t{1} << count});
    EXPECT_EQ((*outputs)[0].values<float>()[1], -1);
    EXPECT_EQ((*outputs)[0].values<float>()[3], 1);
  }
}

TEST(ContentsRead, NotesWhatTheInnermostInferenceAsksFor) {
  const absl::StatusOr<Model> model = ParseModel(R"(<ir_version: 10, opset_import: ["" : 20]>
    g (float[6] x, int64[2] shape) => (float[] y) { y = Reshape (x, shape) })");
  ASSERT_TRUE(model.ok()) << model.status();
  const Node& node = *model->graph->nodes().front();
  const Tensor x = Counted({6}), shape = Tensor::Of<int64_t>({2}, {2, 3});
  std::vector<ShapeContext::Known> known = {
      {DataType::kFloat, Shape({Dim(6)}), std::nullopt, &x},
      {DataType::kInt64, Shape({Dim(2)}), std::nullopt, &shape}};
  const ContentsRead outer(2);
  {
    const ContentsRead inner(2);
    ShapeContext context(node, 20, known);
    ASSERT_TRUE(OpRegistry::Global().Find("", "Reshape", 20)->Infer(context).ok());
    EXPECT_FALSE(inner.contains(0));
    EXPECT_TRUE(inner.contains(1));
  }
  EXPECT_FALSE(outer.contains(1));
}

}  // namespace
}  // namespace pagefuse
