// SPDX-License-Identifier: Apache-2.0
// What is written for other runtimes computes what the ops compute: every golden case, through the
// bodies alone and in ops of the oldest target.
#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "foreign.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "must.h"
#include "paths.h"
#include "tools/check/testcase.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/graph/body_domains.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/ops/registry/registry.h"
#include "pagefuse/ops/schema/type_rows.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/lower/lower.h"

namespace pagefuse {
namespace {

// Runs the bodies of a model's ops and nothing else of pagefuse's.
absl::StatusOr<std::vector<Tensor>> RunBodies(const Model& model,
                                              const std::map<std::string, Tensor>& feeds) {
  auto written = Written(model, kOldestTarget);
  if (!written.ok()) return written.status();
  auto foreign = WithForeignNames(*written);
  if (!foreign.ok()) return foreign.status();
  auto bytes = AsBytes(feeds);
  if (!bytes.ok()) return bytes.status();
  auto outputs = EvaluateModel(*foreign, *bytes);
  if (!outputs.ok()) return outputs.status();
  return FromBytes(*std::move(outputs), model);
}

class WrittenGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(WrittenGolden, BodyGivesTheAnswer) {
  TestCase test_case = Must(LoadTestCase(GetParam()));
  LetNansDiffer(test_case);
  const absl::Status status = CheckTestCase(test_case, RunBodies);
  EXPECT_TRUE(status.ok()) << status;
}

TEST_P(WrittenGolden, ReadsBackAsItWas) {
  TestCase test_case = Must(LoadTestCase(GetParam()));
  const auto written = Must(Written(test_case.model, kOldestTarget));
  const auto bytes = Must(ExportModel(written));
  const auto back = Must(ImportModel(bytes, {}));
  EXPECT_TRUE(back.functions.empty());
  EXPECT_EQ(back.opset_imports, test_case.model.opset_imports);
  const Node& was = *test_case.model.graph->nodes().front();
  const Node& is = *back.graph->nodes().front();
  EXPECT_EQ(is.domain(), was.domain());
  EXPECT_EQ(is.op_type(), was.op_type());
  // Attributes that stood at their defaults may be said now.
  for (const auto& [name, attribute] : was.attributes()) {
    ASSERT_NE(is.attribute(name), nullptr) << name;
    EXPECT_EQ(is.attribute(name)->value.index(), attribute.value.index()) << name;
  }
}

std::string NameOf(const ::testing::TestParamInfo<std::string>& info) {
  return GoldenName(info.param);
}

INSTANTIATE_TEST_SUITE_P(All, WrittenGolden, ::testing::ValuesIn(GoldenFoldersWithAnswers()),
                         NameOf);

// A suite without cases would pass.
TEST(WrittenGoldens, AreFound) { EXPECT_GE(GoldenFoldersWithAnswers().size(), 28u); }

TEST(WrittenModel, LayersShareTheirBodies) {
  auto model = Must(LoadModel(SourcePath("models/gemma3_B18/model.onnx")));
  ASSERT_TRUE(RunPipeline(model).ok());
  const auto written = Must(Written(model, kOldestTarget));
  std::map<std::string, int> bodies;
  for (const Function& function : written.functions) ++bodies[function.name];
  // Attention over a window and over all keys; all else once.
  EXPECT_EQ(bodies, (std::map<std::string, int>{{"AddNorm", 1},
                                                {"GatedLinear", 1},
                                                {"PagedAttention", 2},
                                                {"RMSNormalization", 1},
                                                {"RopeCacheInsert", 1},
                                                {"RotaryEmbedding", 1}}));
  EXPECT_EQ(written.OpsetVersion(""), kOldestTarget);
  EXPECT_EQ(written.ir_version, 10);
}

TEST(WrittenModel, NamesOverloadsNowhere) {
  auto model = Must(LoadModel(SourcePath("models/deepseek_v32_A18/model.onnx")));
  ASSERT_TRUE(RunPipeline(model).ok());
  const auto written = Must(Written(model, kOldestTarget));
  ASSERT_FALSE(written.functions.empty());
  std::set<std::pair<std::string, std::string>> names;
  for (const Function& function : written.functions) {
    EXPECT_EQ(function.overload, "");
    EXPECT_TRUE(names.emplace(function.domain, function.name).second)
        << function.domain << "." << function.name;
  }
}

// Index queries that are codes leave one op and enter another as bytes, in a file as here.
TEST(WrittenModel, CodesOfIndexQueriesAreReadAgain) {
  auto model = Must(LoadModel(SourcePath("models/deepseek_v32_A18/model.onnx")));
  ASSERT_TRUE(RunPipeline(model, {.options = {{"indexer_cache", "fp8"}}}).ok());
  auto written = Must(Written(model, kOldestTarget));
  const auto report = RunPipeline(written);
  EXPECT_TRUE(report.ok()) << report.status();
}

// A runtime that takes input and output for one memory copies nothing.
TEST(WrittenModel, CachesAreWrittenStraight) {
  for (const char* mode : {"none", "fp8_per_token_head", "int8_per_token_head"}) {
    SCOPED_TRACE(mode);
    auto model = Must(LoadModel(SourcePath("models/gemma3_B18/model.onnx")));
    ASSERT_TRUE(RunPipeline(model, {.options = {{"kv_cache", mode}}}).ok());
    const auto written = Must(Written(model, kOldestTarget));
    int caches = 0;
    for (const Function& function : written.functions) {
      if (function.name != "RopeCacheInsert") continue;
      for (const Value* output : function.body->outputs()) {
        if (output->name().find("cache_out") == std::string::npos) continue;
        ++caches;
        ASSERT_NE(output->producer(), nullptr) << output->name();
        EXPECT_TRUE(output->producer()->Is("ScatterND")) << output->name();
        EXPECT_EQ(output->producer()->input(0)->producer(), nullptr) << output->name();
      }
    }
    EXPECT_EQ(caches, std::string(mode) == "none" ? 2 : 4);
  }
}

TEST(WrittenModel, RefusesASecondWriter) {
  auto model = Must(ParseModel(R"(
<ir_version: 10, opset_import: ["" : 24, "pagefuse" : 1]>
g (float[T, 2, 8] k, float[T, 2, 8] v, float[NB, 4, 2, 8] kc, float[NB, 4, 2, 8] vc, int64[T] slots)
  => (float[NB, 4, 2, 8] kc_out, float[NB, 4, 2, 8] vc_out)
{
  kc_1, vc_1 = pagefuse.PagedCacheInsert (k, v, kc, vc, slots)
  kc_out, vc_out = pagefuse.PagedCacheInsert (k, v, kc_1, vc_1, slots)
}
)"));
  const auto written = Written(model, kOldestTarget);
  ASSERT_FALSE(written.ok());
  EXPECT_NE(written.status().message().find("a file has one writer for each cache"),
            absl::string_view::npos)
      << written.status();
}

// The op behind a call of a written graph, and the domain of its first body; null for other nodes.
std::pair<const OpDef*, std::string_view> OpOfCall(const Node& node) {
  const OpRegistry& ops = OpRegistry::Global();
  if (IsBodyDomain(node.domain(), kNewerOpsDomain)) {
    return {ops.Find("", node.op_type(), kNewestOpset), kNewerOpsDomain};
  }
  if (!IsBodyDomain(node.domain(), kFusedDomain)) return {nullptr, {}};
  return {ops.Find(kFusedDomain, node.op_type(), 1), kFusedDomain};
}

// Hosts with a library of ops choose by types and domain.
void ExpectRowsForAllCalls(const Model& written) {
  int calls = 0;
  for (const auto& node : written.graph->nodes()) {
    const auto [op, base] = OpOfCall(*node);
    if (op == nullptr) continue;
    ++calls;
    const auto rows = Must(TypeRows(*op));
    std::vector<DataType> inputs, outputs;
    for (const Value* value : node->inputs()) {
      inputs.push_back(value == nullptr ? DataType::kUndefined : value->dtype());
    }
    for (const Value* value : node->outputs()) {
      outputs.push_back(value == nullptr ? DataType::kUndefined : value->dtype());
    }
    const TypeRow* row = FindTypeRow(rows, inputs, outputs);
    ASSERT_NE(row, nullptr) << PrintNode(*node);
    std::vector<std::string> domains;
    for (size_t body = 0; body < kMaxBodies; ++body) {
      domains.push_back(BodyDomain(base, row->said_type, body));
    }
    EXPECT_THAT(domains, ::testing::Contains(node->domain())) << PrintNode(*node);
  }
  EXPECT_GT(calls, 0);
}

TEST_P(WrittenGolden, HasRowsForItsTypes) {
  const TestCase test_case = Must(LoadTestCase(GetParam()));
  for (const bool keep_float8 : {false, true}) {
    const auto written = Must(Written(test_case.model, kOldestTarget, keep_float8));
    ExpectRowsForAllCalls(written);
  }
}

TEST(WrittenModel, HasRowsForItsTypes) {
  for (const auto& [name, mode] :
       std::vector<std::pair<std::string, std::string>>{{"gemma3_B18", "fp8_per_token_head"},
                                                        {"gemma3_A18", "turboquant_4bit_nc"},
                                                        {"gemma3_D_paged", ""},
                                                        {"deepseek_v3p_B18", "fp8"},
                                                        {"deepseek_v32_A18", ""},
                                                        {"deepseek_v4_A18", ""},
                                                        {"deepseek_v4p_A18", "fp8"}}) {
    SCOPED_TRACE(name);
    auto model = Must(LoadModel(SourcePath(StrCat("models/", name, "/model.onnx"))));
    PipelineOptions options;
    if (!mode.empty()) options.options["kv_cache"] = mode;
    ASSERT_TRUE(RunPipeline(model, options).ok());
    const auto written = Must(Written(model, kOldestTarget));
    ExpectRowsForAllCalls(written);
  }
}

TEST(WrittenModel, KeepsFloat8CachesWhereItIsAsked) {
  const auto test_case =
      Must(LoadTestCase(TestDataPath("golden/PagedCacheInsert/fp8_bf16_d128_b16")));
  for (const bool keep_float8 : {false, true}) {
    const auto written = Must(Written(test_case.model, kOldestTarget, keep_float8));
    const DataType expected = keep_float8 ? DataType::kFloat8E4M3FN : DataType::kUint8;
    EXPECT_EQ(written.graph->FindValue("key_cache")->dtype(), expected);
    EXPECT_EQ(written.graph->FindValue("key_cache_out")->dtype(), expected);
  }
}

TEST(BodyDomains, HaveTypesAndNumbers) {
  EXPECT_EQ(BodyDomain("pagefuse", "", 0), "pagefuse");
  EXPECT_EQ(BodyDomain("pagefuse", "", 1), "pagefuse.2");
  EXPECT_EQ(BodyDomain("pagefuse", "float16", 0), "pagefuse.float16");
  EXPECT_EQ(BodyDomain("pagefuse", "uint8", 2), "pagefuse.uint8.3");
  for (const char* domain : {"pagefuse", "pagefuse.2", "pagefuse.float16", "pagefuse.uint8.3"}) {
    EXPECT_TRUE(IsBodyDomain(domain, "pagefuse")) << domain;
  }
  for (const char* domain : {"", "pagefused", "pagefuse.", "pagefuse.1", "pagefuse.onnx",
                             "pagefuse.float16.1", "pagefuse.float16.2.3", "pagefuse.2.float16"}) {
    EXPECT_FALSE(IsBodyDomain(domain, "pagefuse")) << domain;
  }
}

}  // namespace
}  // namespace pagefuse
