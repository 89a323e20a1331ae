// Fused models in ONNX Runtime: steps of two sequences give what they give here.
#include <filesystem>
#include <string>
#include <vector>

#include <unistd.h>

#include "foreign.h"
#include "gtest/gtest.h"
#include "ort_libraries.h"
#include "paths.h"
#include "tools/ort_host.h"
#include "tools/ort_steps.h"

#include "pagefuse/ir/onnx_io.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/passes/export/export.h"

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
    auto model = LoadModel(SourcePath(StrCat("models/", GetParam().model, "/model.onnx")));
    ASSERT_TRUE(model.ok()) << model.status();
    PipelineOptions options;
    if (*GetParam().cache != 0) options.options["kv_cache"] = GetParam().cache;
    if (*GetParam().index_keys != 0) options.options["indexer_cache"] = GetParam().index_keys;
    options.options["indexer_hadamard"] = GetParam().hadamard;
    ASSERT_TRUE(RunPipeline(*model, options).ok());
    auto written = Written(*model, kOldestTarget);
    ASSERT_TRUE(written.ok()) << written.status();
    const absl::Status saved = SaveModel(*written, file_);
    ASSERT_TRUE(saved.ok()) << saved;
    auto read = LoadModel(file_);
    ASSERT_TRUE(read.ok()) << read.status();
    auto steps = tools::MakeSteps(*std::move(read));
    ASSERT_TRUE(steps.ok()) << steps.status();
    steps_ = *std::move(steps);
  }
  void TearDown() override { std::filesystem::remove(file_); }

  std::string file_;
  std::vector<tools::OrtStep> steps_;
};

// The largest difference of float outputs over the largest number among them (or 1).
double Difference(const Tensor& want, const Tensor& got) {
  double largest = 0, scale = 1;
  for (int64_t i = 0; i < want.size(); ++i) {
    scale = std::max<double>(scale, std::abs(want.values<float>()[i]));
    largest = std::max<double>(largest, std::abs(want.values<float>()[i] - got.values<float>()[i]));
  }
  return largest / scale;
}

TEST_P(OrtModels, StepsAreEqualAndCachesAreInPlace) {
  for (const std::string& path : OrtLibraries()) {
    SCOPED_TRACE(path);
    auto library = tools::OrtLibrary::Load(path);
    ASSERT_TRUE(library.ok()) << library.status();
    auto session = tools::OrtSession::Create(*library, file_, {.threads = 1});
    ASSERT_TRUE(session.ok()) << session.status();
    for (const tools::OrtStep& step : steps_) {
      ASSERT_FALSE(step.in_place.empty());
      auto memory = tools::MemoryOf(step, /*bind=*/true);
      ASSERT_TRUE(memory.ok()) << memory.status();
      const auto outputs = (*session)->Run(memory->feeds, step.output_names, memory->bound);
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      int64_t codes = 0, different = 0;
      for (size_t i = 0; i < outputs->size(); ++i) {
        const Tensor& want = step.expected[i];
        const Tensor& got = (*outputs)[i];
        ASSERT_EQ(got.dims(), want.dims()) << step.output_names[i];
        ASSERT_EQ(got.dtype(), want.dtype()) << step.output_names[i];
        if (want.dtype() == DataType::kFloat) {
          // Where a code is rounded the other way, what follows may be off by a step of it.
          EXPECT_LE(Difference(want, got), *GetParam().cache == 0 ? 1e-5 : 5e-3)
              << step.output_names[i];
          continue;
        }
        const auto* a = static_cast<const uint8_t*>(want.data());
        const auto* b = static_cast<const uint8_t*>(got.data());
        codes += want.byte_size();
        for (int64_t byte = 0; byte < want.byte_size(); ++byte) different += a[byte] != b[byte];
      }
      EXPECT_LE(different, codes / 1000);
    }
  }
}

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
