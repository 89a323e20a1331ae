// SPDX-License-Identifier: Apache-2.0
// Graphs in attributes, run by sessions: what they capture, keep and hand on. Compared with plain
// evaluation.
#include "must.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/ir/text/text.h"
#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/runtime/session.h"

namespace pagefuse {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Model Parse(const std::string& graph) {
  return Must(ParseModel("<ir_version: 10, opset_import: [\"\" : 21]> " + graph));
}

using Feeds = std::map<std::string, Tensor>;

Tensor Floats(const std::vector<float>& values) {
  return Tensor::Of<float>({static_cast<int64_t>(values.size())}, values);
}

// The outputs of a session that runs the graph as it is, twice on the same feeds; evaluation must
// give the same.
std::vector<Tensor> RunBoth(const std::string& graph, const Feeds& feeds) {
  const Model model = Parse(graph);
  auto session = Must(Session::Create(model.Clone(), {.optimise = false}));
  std::vector<Tensor> outputs;
  for (int run = 0; run < 2; ++run) {
    auto got = session->Run(feeds);
    EXPECT_TRUE(got.ok()) << got.status();
    if (got.ok()) outputs = *got;
  }
  const auto want = EvaluateModel(model, feeds);
  EXPECT_TRUE(want.ok()) << want.status();
  for (size_t i = 0; want.ok() && i < outputs.size(); ++i) {
    EXPECT_TRUE(outputs[i].IdenticalTo((*want)[i])) << "output " << i;
  }
  return outputs;
}

TEST(ControlFlow, BranchesReadValuesAroundThem) {
  const char* graph = R"(
    g (bool c, float[N] x) => (float[M] y) {
      t = Add (x, x)
      r = If <then_branch = a () => (p) { p = Mul (t, x) }, else_branch = b () => (q) { q = Neg (t) }> (c)
      y = Add (r, t)
    })";
  const Feeds no = {{"c", Tensor::Scalar(false)}, {"x", Floats({1, 3})}};
  const Feeds yes = {{"c", Tensor::Scalar(true)}, {"x", Floats({1, 3})}};
  EXPECT_THAT(RunBoth(graph, yes)[0].values<float>(), ElementsAre(4, 24));
  EXPECT_THAT(RunBoth(graph, no)[0].values<float>(), ElementsAre(0, 0));
}

TEST(ControlFlow, ABranchMayHandOnWhatItReads) {
  const auto outputs = RunBoth(R"(
    g (bool c, float[N] x) => (float[N] y, float[N] z) {
      t = Add (x, x)
      y = If <then_branch = a () => (p) { p = Identity (t) }, else_branch = b () => (q) { q = Neg (x) }> (c)
      u = Add (t, t)
      z = Add (u, y)
    })",
                               {{"c", Tensor::Scalar(true)}, {"x", Floats({1})}});
  EXPECT_THAT(outputs[0].values<float>(), ElementsAre(2));
  EXPECT_THAT(outputs[1].values<float>(), ElementsAre(6));
}

TEST(ControlFlow, LoopsNestAndSeeBothGraphsAround) {
  const auto outputs = RunBoth(R"(
    g (int64 n, float[N] x) => (float[N] y) <bool yes = {1}> {
      t = Neg (x)
      y = Loop <body = outer (int64 i, bool c, float[N] s) => (bool c1, float[N] s1) {
        c1 = Identity (c)
        d = Add (s, t)
        s1 = Loop <body = inner (int64 j, bool e, float[N] r) => (bool e1, float[N] r1) {
          e1 = Identity (e)
          r1 = Add (r, d)
        }> (n, yes, s)
      }> (n, yes, x)
    })",
                               {{"n", Tensor::Scalar<int64_t>(2)}, {"x", Floats({1, 5})}});
  // d = s - x, s becomes s + 2 d: 1 stays 1.
  EXPECT_THAT(outputs[0].values<float>(), ElementsAre(1, 5));
}

TEST(ControlFlow, StateMayGrowFromStepToStep) {
  const auto outputs = RunBoth(R"(
    g (int64 n, float[N] x) => (float[M] y, float[S] sums) {
      y, sums = Loop <body = b (int64 i, bool c, float[K] s) => (bool c1, float[L] s1, float sum) {
        c1 = Identity (c)
        s1 = Concat <axis = 0> (s, x)
        sum = ReduceSum <keepdims = 0> (s1)
      }> (n, "", x)
    })",
                               {{"n", Tensor::Scalar<int64_t>(3)}, {"x", Floats({2})}});
  EXPECT_THAT(outputs[0].values<float>(), ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(outputs[1].values<float>(), ElementsAre(4, 6, 8));
}

TEST(ControlFlow, ScansCutAndStack) {
  const auto outputs =
      RunBoth(R"(
    g (float[2] s, float[2, 3] x) => (float[2] last, float[2, 3] seen) {
      t = Add (s, s)
      last, seen = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [1],
        body = b (a, e) => (a1, o) {
          a1 = Add (a, e)
          o = Sub (a1, t)
        }> (s, x)
    })",
              {{"s", Floats({1, 2})}, {"x", Tensor::Of<float>({2, 3}, {1, 2, 3, 10, 20, 30})}});
  EXPECT_THAT(outputs[0].values<float>(), ElementsAre(7, 62));
  EXPECT_THAT(outputs[1].values<float>(), ElementsAre(0, 2, 5, 8, 28, 58));
}

TEST(ControlFlow, GraphsRunAsOftenAsALimitSays) {
  const char* graph = R"(
    g (int64 n, float x) => (float y) {
      y = Loop <body = b (int64 i, bool c, float s) => (bool d, float t) {
        d = Identity (c)
        t = Loop <body = inner (int64 j, bool e, float u) => (bool f, float v) {
          f = Identity (e)
          v = Add (u, x)
        }> (n, , s)
      }> (n, , x)
    })";
  const Model model = Parse(graph);
  const auto feeds = [](int64_t steps) {
    return Feeds{{"n", Tensor::Scalar(steps)}, {"x", Tensor::Scalar(1.0f)}};
  };
  constexpr int64_t kEnough = 3 + 9;  // three outer steps with three inner ones each
  for (const int64_t limit : {kEnough, kEnough - 1}) {
    const RunLimits limits = {.max_body_runs = limit};
    auto session = Must(Session::Create(model.Clone(), {.optimise = false, .limits = limits}));
    for (int run = 0; run < 2; ++run) {  // every run counts anew
      const absl::Status ran = session->Run(feeds(3)).status();
      const absl::Status evaluated = EvaluateModel(model, feeds(3), {.limits = limits}).status();
      EXPECT_EQ(ran, evaluated);
      if (limit == kEnough) {
        EXPECT_TRUE(ran.ok()) << ran;
      } else {
        EXPECT_EQ(ran.code(), absl::StatusCode::kResourceExhausted);
        EXPECT_THAT(std::string(ran.message()),
                    HasSubstr("node \"t\" (Loop): graphs ran 11 times, which is the limit"));
      }
    }
  }
  // Without a word about limits a loop that never ends does end.
  auto session = Must(Session::Create(model.Clone(), {.optimise = false}));
  EXPECT_EQ(session->Run(feeds(int64_t{1} << 62)).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(Session, RefusesTensorsOverTheLimit) {
  const Model model = Parse("g (int64[2] shape, float x) => (y) { y = Expand (x, shape) }");
  const RunLimits limits = {.max_tensor_bytes = 4096};
  auto session = Must(Session::Create(model.Clone(), {.optimise = false, .limits = limits}));
  const auto run = [&](int64_t rows, int64_t columns) {
    const Feeds feeds = {{"shape", Tensor::Of<int64_t>({2}, {rows, columns})},
                         {"x", Tensor::Scalar(1.0f)}};
    const absl::Status status = session->Run(feeds).status();
    EXPECT_EQ(status, EvaluateModel(model, feeds, {.limits = limits}).status());
    return status;
  };
  EXPECT_TRUE(run(32, 32).ok());
  const absl::Status status = run(33, 32);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("node \"y\" (Expand): output 0 takes 4224 bytes, over the limit of 4096"));
}

TEST(ControlFlow, SaysWhichGraphIsWrong) {
  const Model model = Parse(R"(
    g (int64 n, float[N] x) => (float[N] y) {
      y = Loop <body = b (int64 i, bool c) => (bool c1) { c1 = Identity (c) }> (n, "", x)
    })");
  const auto session = Session::Create(model.Clone(), {.optimise = false});
  ASSERT_FALSE(session.ok());
  EXPECT_THAT(std::string(session.status().message()),
              HasSubstr("attribute \"body\": expected 3 inputs and at least 2 outputs, got 2"));
}

TEST(Session, RefusesKernelsThatNoOpHas) {
  const Model model = Parse("g (float[N] x) => (float[N] y) { y = Neg (x) }");
  const auto message = [&](const std::string& op, const std::string& kernel) {
    SessionOptions options{.optimise = false};
    options.force_kernel[op] = kernel;
    const auto session = Session::Create(model.Clone(), options);
    return session.ok() ? "" : std::string(session.status().message());
  };
  EXPECT_EQ(message("Neg", "reference"), "");
  EXPECT_THAT(message("Neg", "quick"),
              HasSubstr("op \"Neg\" has no kernel \"quick\"; it has reference, hwy"));
  EXPECT_EQ(message("Negg", "hwy"),
            "kernel \"hwy\" of \"Negg\": no such op has kernels; similar names: \"Neg\"");
}

}  // namespace
}  // namespace pagefuse
