// SPDX-License-Identifier: Apache-2.0
// The fuzzer sees what it is there to see: crashes, hangs, memory without end; and makes cases
// small.
#include <cstdlib>
#include <set>
#include <vector>

#include "child.h"
#include "minimise.h"
#include "model_case.h"
#include "model_mutator.h"
#include "must.h"
#include "paths.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ir/text/text.h"

namespace pagefuse::fuzz {
namespace {

using testing::HasSubstr;

TEST(Child, SaysHowTheWorkEnded) {
  Progress& progress = SharedProgress();
  const auto run = [&progress](const ChildLimits& limits, const auto& work) {
    return RunInChild(progress, limits, [&work](Progress& child) {
      child.Begin(1);
      work();
      ++child.done;
    });
  };
  EXPECT_EQ(run({}, [] {}).ending, Ending::kDone);
  EXPECT_EQ(progress.done, 1);

  const ChildResult crash = run({}, [] {
    std::fprintf(stderr, "last words");
    std::abort();
  });
  EXPECT_EQ(crash.ending, Ending::kCrash);
  EXPECT_THAT(crash.log, HasSubstr("last words"));

  const auto never_ends = [] {
    for (volatile int i = 0;; static_cast<void>(i)) {
    }
  };
  EXPECT_EQ(run({.piece_seconds = 0.1}, never_ends).ending, Ending::kHang);

  const auto takes_all = [] {
    for (std::vector<std::vector<char>> kept;;) kept.emplace_back(1 << 20, 'x');
  };
  EXPECT_EQ(run({.resident_bytes = int64_t{1} << 30}, takes_all).ending, Ending::kMemory);
  EXPECT_EQ(progress.done, 1);
}

TEST(Child, TellsFindingsApart) {
  ChildResult result = {.ending = Ending::kCrash,
                        .log = "noise\nops/a.cc:3:5: runtime error: shift exponent\nmore\n"};
  EXPECT_EQ(FindingKey(result), "crash ops/a.cc:3:5: runtime error: shift exponent");
  result.log =
      "    #0 0x1 in malloc /usr/x\n    #1 0x2 in Foo ops/foo.cc:1\n    #2 0x3 in RunAlone "
      "tests/fuzz/model_fuzz.cc:3\n";
  EXPECT_EQ(FindingKey(result), "crash Foo ops/foo.cc:1");
}

std::string ModelOf(const std::string& graph) {
  auto model = Must(ParseModel("<ir_version: 10, opset_import: [\"\" : 21]> " + graph));
  return Must(ExportModel(model));
}

TEST(Minimise, KeepsWhatFails) {
  const std::string model = ModelOf(R"(g (float[2] x, float[2] unused) => (float[2] y, float[2] z) {
    a = Add (x, x)
    b = Neg (a)
    y = Mul (b, a)
    z = Abs (b)
  })");
  const auto has_neg = [](const std::string& bytes) {
    onnx::ModelProto proto;
    if (!proto.ParseFromString(bytes)) return false;
    for (const auto& node : proto.graph().node()) {
      if (node.op_type() == "Neg") return true;
    }
    return false;
  };
  onnx::ModelProto small;
  ASSERT_TRUE(small.ParseFromString(Minimise(model, has_neg)));
  ASSERT_EQ(small.graph().node_size(), 1);
  EXPECT_EQ(small.graph().node(0).input_size(), 0);
  EXPECT_EQ(small.graph().input_size(), 0);
}

TEST(ModelCase, RunsAWholeModel) {
  const std::string model = ModelOf("g (float[N, 3] x) => (float[N, 3] y) { y = Neg (x) }");
  for (int variant = 0; variant < kNumVariants; ++variant) {
    const CaseResult result = RunModelCase(model, variant, "");
    EXPECT_EQ(result.reached, Reached::kRan) << variant << ": " << result.status;
  }
}

TEST(ModelCase, SaysWhereItStopped) {
  EXPECT_EQ(RunModelCase("no model", 0, "").reached, Reached::kNothing);
  const std::string wrong = ModelOf("g (float[2] x, float[3] y) => (z) { z = Add (x, y) }");
  EXPECT_EQ(RunModelCase(wrong, 0, "").reached, Reached::kImported);
  const std::string unknown = ModelOf("g (float[2] x) => (float[2] y) { y = Nothing (x) }");
  EXPECT_EQ(RunModelCase(unknown, 0, "").reached, Reached::kInferred);
}

TEST(Mutator, RepeatsItselfAndChangesMuch) {
  const SeedModels seeds({SourcePath("tests/passes/quantise_kv_cache")});
  ASSERT_GT(seeds.size(), 0);
  std::set<std::string> cases;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const std::string bytes = MakeCase(seeds, seed);
    EXPECT_EQ(bytes, MakeCase(seeds, seed)) << seed;
    cases.insert(bytes);
  }
  EXPECT_GT(cases.size(), 150);
}

}  // namespace
}  // namespace pagefuse::fuzz
