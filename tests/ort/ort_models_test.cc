// SPDX-License-Identifier: Apache-2.0
// Fused models in ONNX Runtime: steps of two sequences give what they give here.
#include <filesystem>
#include <string>
#include <vector>

#include <unistd.h>

#include "foreign.h"
#include "gtest/gtest.h"
#include "must.h"
#include "ort_libraries.h"
#include "paths.h"
#include "tools/ort/ort_comparison.h"
#include "tools/ort/ort_host.h"
#include "tools/ort/ort_steps.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/passes/lower/lower.h"

namespace pagefuse {
namespace {

struct WrittenCase {
  const char* model;
  const char* cache;
  const char* index_keys = "";
  const char* hadamard = "off";
};

class OrtModels : public ::testing::TestWithParam<WrittenCase> {
 protected:
  void SetUp() override {
    file_ =
        (std::filesystem::temp_directory_path() / StrCat("pagefuse_ort_model_", getpid(), ".onnx"))
            .string();
    auto model = Must(LoadModel(SourcePath(StrCat("models/", GetParam().model, "/model.onnx"))));
    PipelineOptions options;
    if (*GetParam().cache != 0) options.options["kv_cache"] = GetParam().cache;
    if (*GetParam().index_keys != 0) options.options["indexer_cache"] = GetParam().index_keys;
    options.options["indexer_hadamard"] = GetParam().hadamard;
    ASSERT_TRUE(RunPipeline(model, options).ok());
    auto written = Must(Written(model, kOldestTarget));
    Must(SaveModel(written, file_));
    auto read = Must(LoadModel(file_));
    steps_ = Must(tools::MakeSteps(std::move(read)));
  }
  void TearDown() override { std::filesystem::remove(file_); }
  void CheckSteps(const std::string& custom_ops, bool bind);

  // A cache of one row for many tokens has none where sequences are short.
  size_t CachesWithRows() const {
    size_t count = 0;
    for (const auto& [output, input] : steps_[0].in_place) {
      count += steps_[0].feeds.at(input).byte_size() > 0 ? 1 : 0;
    }
    return count;
  }

  std::string file_;
  std::vector<tools::OrtStep> steps_;
};

void OrtModels::CheckSteps(const std::string& custom_ops, bool bind) {
  for (const std::string& path : OrtLibraries()) {
    SCOPED_TRACE(path);
    auto library = Must(tools::OrtLibrary::Load(path));
    library->TakeMessages();
    auto session =
        Must(tools::OrtSession::Create(library, file_, {.custom_ops = custom_ops, .threads = 1}));
    tools::OrtComparison comparison;
    for (const tools::OrtStep& step : steps_) {
      ASSERT_FALSE(step.in_place.empty());
      auto memory = Must(tools::MemoryOf(step, bind));
      const auto outputs = Must(session->Run(memory.feeds, step.output_names, memory.bound));
      Must(comparison.Add(step.output_names, step.expected, outputs));
    }
    const absl::Status equal = comparison.Check();
    EXPECT_TRUE(equal.ok()) << equal;
    // Each cache that is copied is said once, however many steps copy it.
    const size_t copies = custom_ops.empty() || bind ? 0 : CachesWithRows();
    EXPECT_EQ(library->TakeMessages().size(), copies);
  }
}

TEST_P(OrtModels, BodiesGiveTheSteps) { CheckSteps("", /*bind=*/true); }

TEST_P(OrtModels, KernelsGiveTheStepsInPlace) { CheckSteps(CustomOpsLibrary(), /*bind=*/true); }

TEST_P(OrtModels, KernelsGiveTheStepsInCopies) { CheckSteps(CustomOpsLibrary(), /*bind=*/false); }

INSTANTIATE_TEST_SUITE_P(
    All, OrtModels,
    ::testing::Values(WrittenCase{"gemma3_B18", ""}, WrittenCase{"gemma3_A18", ""},
                      WrittenCase{"gemma3_B18", "fp8_per_tensor"},
                      WrittenCase{"gemma3_B18", "fp8_per_token_head"},
                      WrittenCase{"gemma3_A18", "int8_per_token_head"},
                      WrittenCase{"gemma3_B18", "int4_per_token_head"},
                      WrittenCase{"gemma3_B18", "turboquant_4bit_nc"},
                      WrittenCase{"deepseek_v3_B18", ""}, WrittenCase{"deepseek_v32_A18", ""},
                      WrittenCase{"deepseek_v3p_B18", "fp8"},
                      WrittenCase{"deepseek_v32p_A18", "fp8"}, WrittenCase{"deepseek_v4_A18", ""},
                      WrittenCase{"deepseek_v4p_A18", "fp8"},
                      WrittenCase{"deepseek_v32p_A18", "fp8", "fp8", "on"},
                      WrittenCase{"deepseek_v4p_A18", "fp8", "fp8"},
                      WrittenCase{"deepseek_v4p_A18", "fp8", "mxfp4", "on"}),
    [](const ::testing::TestParamInfo<WrittenCase>& info) {
      return StrCat(info.param.model, *info.param.cache == 0 ? "" : "_", info.param.cache,
                    *info.param.index_keys == 0 ? "" : "_index_", info.param.index_keys);
    });

}  // namespace
}  // namespace pagefuse
