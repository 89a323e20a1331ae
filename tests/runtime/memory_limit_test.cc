// SPDX-License-Identifier: Apache-2.0
// What a run may take at one time: graphs that grow without end stop with the node that asked for
// too much, and the session goes on.
#include "must.h"
#include "tiny_decoder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/tensor/machine_memory.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/runtime/engine.h"

namespace pagefuse {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using Feeds = std::map<std::string, Tensor>;

constexpr int64_t kMiB = 1 << 20;

std::unique_ptr<Session> MakeSession(const std::string& graph, int64_t max_memory_bytes) {
  return Must(
      Session::Create(Must(ParseModel("<ir_version: 10, opset_import: [\"\" : 21]> " + graph)),
                      {.optimise = false, .max_memory_bytes = max_memory_bytes}));
}

std::string RunError(Session& session, const Feeds& feeds) {
  const absl::Status status = session.Run(feeds).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  return std::string(StdView(status.message()));
}

Tensor Floats(int64_t count) { return *Tensor::Allocate(DataType::kFloat, {count}); }
Tensor Times(int64_t count) { return Tensor::Scalar<int64_t>(count); }

constexpr const char* kDoubles = R"(
  g (int64 n, float[N] x) => (float[M] y) <bool yes = {1}> {
    y = Loop <body = b (int64 i, bool c, float[K] s) => (bool c1, float[L] s1) {
      c1 = Identity (c)
      s1 = Concat <axis = 0> (s, s)
    }> (n, yes, x)
  })";

TEST(MemoryLimit, ALoopThatDoublesItsStateEndsAtTheNode) {
  const auto session = MakeSession(kDoubles, 64 * kMiB);
  const std::string error = RunError(*session, {{"n", Times(60)}, {"x", Floats(1000)}});
  EXPECT_THAT(error, HasSubstr("node \"s1\" (Concat): no memory for "));
  EXPECT_THAT(error, HasSubstr("of 67108864 that may be"));
}

TEST(MemoryLimit, ASessionThatRanOutRunsAgain) {
  const auto session = MakeSession(kDoubles, 64 * kMiB);
  for (int round = 0; round < 3; ++round) {
    RunError(*session, {{"n", Times(60)}, {"x", Floats(1000)}});
    const auto outputs = Must(session->Run({{"n", Times(3)}, {"x", Floats(1000)}}));
    EXPECT_EQ(outputs[0].dims(), std::vector<int64_t>{8000});
  }
}

TEST(MemoryLimit, WhatALoopGathersCounts) {
  const auto session = MakeSession(R"(
    g (float[N] x) => (float[M, N] y) <int64 n = {1000000}, bool yes = {1}> {
      y = Loop <body = b (int64 i, bool c) => (bool c1, float[N] step) {
        c1 = Identity (c)
        step = Neg (x)
      }> (n, yes)
    })",
                                   64 * kMiB);
  EXPECT_THAT(RunError(*session, {{"x", Floats(kMiB)}}),
              HasSubstr("node \"step\" (Neg): no memory for 4194304 bytes"));
}

// The steps fit, and what they are stacked to does not.
TEST(MemoryLimit, TheStackOfWhatWasGatheredCounts) {
  const auto session = MakeSession(R"(
    g (float[N] x) => (float[M, N] y) <int64 n = {10}, bool yes = {1}> {
      y = Loop <body = b (int64 i, bool c) => (bool c1, float[N] step) {
        c1 = Identity (c)
        step = Neg (x)
      }> (n, yes)
    })",
                                   64 * kMiB);
  EXPECT_THAT(RunError(*session, {{"x", Floats(kMiB)}}),
              HasSubstr("node \"y\" (Loop): no memory for 41943040 bytes"));
}

TEST(MemoryLimit, WhatAScanGathersCounts) {
  const auto session = MakeSession(R"(
    g (float[T, N] x) => (float[T, N, 4] y) <int64[2] shape = {-1, 1}, int64[2] four = {1, 4}> {
      y = Scan <num_scan_inputs = 1, body = b (float[N] row) => (float[N, 4] wide) {
        column = Reshape (row, shape)
        wide = Expand (column, four)
      }> (x)
    })",
                                   64 * kMiB);
  const Tensor x = *Tensor::Allocate(DataType::kFloat, {8, kMiB});
  EXPECT_THAT(RunError(*session, {{"x", x}}), HasSubstr("node \"wide\" (Expand): no memory for"));
}

TEST(MemoryLimit, AnExpansionIsRefused) {
  const auto session = MakeSession(
      "g (float[N] x, int64[2] shape) => (float[M, N] z) { y = Expand (x, shape) z = Neg (y) }",
      64 * kMiB);
  const Feeds feeds = {{"x", Floats(1000)}, {"shape", Tensor::Of<int64_t>({2}, {1000000, 1000})}};
  EXPECT_THAT(RunError(*session, feeds),
              HasSubstr("node \"y\" (Expand): no memory for 4000000000"));
}

TEST(MemoryLimit, TensorsThatLiveTogetherCountTogether) {
  const char* graph = R"(
    g (float[N] x) => (float[N] y) {
      a = Neg (x)  b = Abs (x)  c = Relu (x)  d = Exp (x)
      ab = Add (a, b)  cd = Add (c, d)
      y = Add (ab, cd)
    })";
  const auto tight = MakeSession(graph, 15 * kMiB);
  EXPECT_THAT(RunError(*tight, {{"x", Floats(kMiB)}}), HasSubstr("node \"d\" (Exp): no memory"));
  const auto enough = MakeSession(graph, 64 * kMiB);
  EXPECT_TRUE(enough->Run({{"x", Floats(kMiB)}}).ok());
}

TEST(MemoryLimit, OutputsCountAsLongAsTheyAreHeld) {
  const auto session = MakeSession("g (float[N] x) => (float[N] y) { y = Neg (x) }", 10 * kMiB);
  const Feeds feeds = {{"x", Floats(kMiB)}};
  std::vector<Tensor> first = *session->Run(feeds), second = *session->Run(feeds);
  EXPECT_EQ(session->stats().memory_bytes, 8 * kMiB);
  EXPECT_THAT(RunError(*session, feeds), HasSubstr("node \"y\" (Neg): no memory"));
  first.clear();
  EXPECT_TRUE(session->Run(feeds).ok());
}

TEST(MemoryLimit, IsThatOfTheMachineWhereNobodySaysOne) {
  const auto session = MakeSession("g (float[N] x) => (float[N] y) { y = Neg (x) }", 0);
  EXPECT_GT(session->memory()->limit(), 0);
  EXPECT_LE(session->memory()->limit(), MachineMemoryBytes() / 5 * 4);
}

TEST(MemoryLimit, TheCacheOfAnEngineCounts) {
  EngineOptions options{.session = {.max_memory_bytes = 1 << 20}, .block_size = 4};
  const auto engine = Must(Engine::Create(TinyDecoder(), options));
  const Request small = {.prompt = {1, 2, 3}, .max_new_tokens = 5};
  const auto completions =
      Must(engine->Generate({small, {.prompt = {1, 2, 3}, .max_new_tokens = 1000000}}));
  EXPECT_EQ(completions[0].tokens, Must(engine->Generate({small}))[0].tokens);
  const absl::Status status = FirstError(completions);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              MatchesRegex(".*needs 250001 pages of 256 bytes at 1000002 tokens, the cache has "
                           "[0-9]+: at most [0-9]+ tokens.*"));
  // Each fits alone, but not all together: they take turns.
  const auto together = Must(engine->Generate({8, {.prompt = {1, 2, 3}, .max_new_tokens = 2500}}));
  for (const Completion& completion : together) {
    EXPECT_EQ(completion.tokens, together[0].tokens);
    EXPECT_EQ(completion.tokens.size(), 2500u);
  }
}

}  // namespace
}  // namespace pagefuse
