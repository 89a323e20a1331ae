// SPDX-License-Identifier: Apache-2.0
// What programs meet that give a session the library: errors, threads, entries of the configuration.
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include "foreign.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "must.h"
#include "ort_libraries.h"
#include "paths.h"
#include "tools/ort/ort_comparison.h"
#include "tools/ort/ort_custom_ops.h"
#include "tools/ort/ort_host.h"
#include "tools/ort/ort_steps.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"

namespace pagefuse {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using tools::OrtLibrary;
using tools::OrtSession;
using tools::OrtSessionOptions;

// By release; the fused Gemma 3 with a cache of bytes and scales.
class OrtWithLibrary : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    file_ = (std::filesystem::temp_directory_path() / StrCat("pagefuse_ort_", getpid(), ".onnx"))
                .string();
    auto model = Must(LoadModel(SourcePath("models/gemma3_B18/model.onnx")));
    PipelineOptions options;
    options.options["kv_cache"] = "int8_per_token_head";
    ASSERT_TRUE(RunPipeline(model, options).ok());
    auto written = Must(Written(model, 21));
    ASSERT_TRUE(SaveModel(written, file_).ok());
    steps_ = Must(tools::MakeSteps(*LoadModel(file_)));
    library_ = Must(OrtLibrary::Load(GetParam()));
    library_->TakeMessages();
  }
  void TearDown() override { std::filesystem::remove(file_); }

  absl::StatusOr<std::unique_ptr<OrtSession>> Open(std::map<std::string, std::string> config = {},
                                                   int threads = 1) {
    return OrtSession::Create(
        library_, file_,
        {.custom_ops = CustomOpsLibrary(), .config = std::move(config), .threads = threads});
  }

  std::string file_;
  std::vector<tools::OrtStep> steps_;
  std::shared_ptr<OrtLibrary> library_;
};

TEST_P(OrtWithLibrary, ASlotOutOfRangeIsAnErrorThatChangesNothing) {
  auto session = Must(Open());
  tools::OrtStep step = steps_[0];
  constexpr int64_t kNoSlot = 1000000;
  for (auto& [name, tensor] : step.feeds) {
    if (name.rfind("slot_mapping", 0) == 0) tensor.mutable_values<int64_t>().back() = kNoSlot;
  }
  const auto memory = Must(tools::MemoryOf(step, /*bind=*/true));
  const auto outputs = session->Run(memory.feeds, step.output_names, memory.bound);
  EXPECT_THAT(std::string(outputs.status().message()),
              AllOf(HasSubstr("RopeCacheInsert"), HasSubstr("node \""),
                    HasSubstr("input 5 \"slot_mapping\""), HasSubstr(StrCat(kNoSlot))));
  for (const auto& [output, cache] : step.in_place) {
    EXPECT_TRUE(memory.feeds.at(cache).IdenticalTo(step.feeds.at(cache))) << cache;
  }
}

// Runs of one session at once: a kernel's memory is lent to one of them at a time.
TEST_P(OrtWithLibrary, TwoThreadsGetTheSerialResults) {
  constexpr int kRuns = 1000;
  // Threads that spin would take the time of those that work.
  auto session = Must(Open({{"session.intra_op.allow_spinning", "0"}}, /*threads=*/2));
  // Steps of different sizes, so that a kernel meets both at once.
  std::vector<std::vector<Tensor>> serial;
  for (const tools::OrtStep& step : steps_) {
    const auto memory = tools::MemoryOf(step, true);
    serial.push_back(*session->Run(memory->feeds, step.output_names, memory->bound));
  }
  std::vector<std::string> problems(2);
  const auto run = [&](int thread) {
    const size_t first = thread == 0 ? 0 : steps_.size() - 1;
    const tools::OrtStep& step = steps_[first];
    const auto memory = tools::MemoryOf(step, true);
    for (int i = 0; i < kRuns; ++i) {
      const auto outputs = session->Run(memory->feeds, step.output_names, memory->bound);
      if (!outputs.ok()) problems[thread] = std::string(outputs.status().message());
      for (size_t k = 0; outputs.ok() && k < outputs->size(); ++k) {
        if (!(*outputs)[k].IdenticalTo(serial[first][k])) problems[thread] = step.output_names[k];
      }
      if (!problems[thread].empty()) return;
    }
  };
  std::thread other(run, 1);
  run(0);
  other.join();
  EXPECT_THAT(problems, Each(IsEmpty()));
}

// Threads of the process.
size_t Threads() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator("/proc/self/task")) {
    ++count;
  }
  return count;
}

// A session of one thread stays one.
TEST_P(OrtWithLibrary, TheLibraryStartsNoThreads) {
  const size_t before = Threads();
  auto session = Must(Open());
  for (const tools::OrtStep& step : steps_) {
    const auto memory = tools::MemoryOf(step, true);
    ASSERT_TRUE(session->Run(memory->feeds, step.output_names, memory->bound).ok());
  }
  EXPECT_EQ(Threads(), before);
}

TEST_P(OrtWithLibrary, ForcedKernelsRun) {
  auto session = Must(
      Open({{"pagefuse.force_kernel", "PagedAttention=reference"}, {"pagefuse.log", "kernels"}}));
  const auto memory = tools::MemoryOf(steps_[0], true);
  ASSERT_TRUE(session->Run(memory->feeds, steps_[0].output_names, memory->bound).ok());
  int forced = 0;
  for (const std::string& line : library_->TakeMessages()) {
    if (line.find("(pagefuse.PagedAttention)") == std::string::npos) continue;
    EXPECT_THAT(line, HasSubstr("kernel reference"));
    ++forced;
  }
  EXPECT_EQ(forced, 6);
}

TEST_P(OrtWithLibrary, EntriesThatMeanNothingAreErrors) {
  for (const auto& [key, value, text] : std::vector<std::array<std::string, 3>>{
           {"pagefuse.log", "loud", "expected off or copies or kernels, got \"loud\""},
           {"pagefuse.microsoft_ops", "yes", "expected off or on, got \"yes\""},
           {"pagefuse.force_kernel", "PagedAttention=fast", "got \"PagedAttention=fast\""}}) {
    const auto session = Open({{key, value}});
    EXPECT_THAT(std::string(session.status().message()), AllOf(HasSubstr(key), HasSubstr(text)));
  }
}

TEST_P(OrtWithLibrary, NothingIsLoggedWhereTheEntrySaysSo) {
  auto session = Must(Open({{"pagefuse.log", "off"}}));
  const auto memory = tools::MemoryOf(steps_[0], /*bind=*/false);
  ASSERT_TRUE(session->Run(memory->feeds, steps_[0].output_names, memory->bound).ok());
  EXPECT_THAT(library_->TakeMessages(), IsEmpty());
}

TEST_P(OrtWithLibrary, RowsAreWithinTheBudget) {
  constexpr int kMostRows = 1500;
  Must(Open());
  const auto ops = Must(tools::LookAtCustomOps(CustomOpsLibrary(), {}));
  EXPECT_LE(ops.rows, kMostRows);
  EXPECT_EQ(ops.names.at("pagefuse").count("PagedAttention"), 1);
  EXPECT_EQ(ops.names.at("pagefuse.float16").count("PagedAttention"), 1);
  EXPECT_EQ(ops.names.count("com.microsoft"), 0);
}

// The builder's export over blocks, which no release computes on the CPU.
TEST_P(OrtWithLibrary, PagedAttentionOfMicrosoftRunsWhereItIsAskedFor) {
  const std::string file = SourcePath("models/gemma3_D_paged/model.onnx");
  const auto steps = Must(tools::MakeSteps(*LoadModel(file)));
  OrtSessionOptions options{
      .custom_ops = CustomOpsLibrary(), .config = {{"pagefuse.microsoft_ops", "on"}}, .threads = 1};
  auto session = Must(OrtSession::Create(library_, file, options));
  tools::OrtComparison comparison;
  for (const tools::OrtStep& step : steps) {
    EXPECT_EQ(step.in_place.size(), 12);
    const auto memory = tools::MemoryOf(step, true);
    const auto outputs = Must(session->Run(memory->feeds, step.output_names, memory->bound));
    ASSERT_TRUE(comparison.Add(step.output_names, step.expected, outputs).ok());
  }
  EXPECT_TRUE(comparison.Check().ok()) << comparison.Check();
  EXPECT_THAT(library_->TakeMessages(), IsEmpty());
  options.config["pagefuse.microsoft_ops"] = "off";
  const auto refused = OrtSession::Create(library_, file, options);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("PagedAttention"));
}

// Where the graph does not import com.microsoft, the release's own optimiser uses that domain all the
// same: ops of ours in it would hide all others.
TEST_P(OrtWithLibrary, OpsThatTheReleaseMakesItselfAreKept) {
  auto model = Must(LoadModel(SourcePath("models/deepseek_v4p_A18/model.onnx")));
  ASSERT_TRUE(RunPipeline(model, {}).ok());
  auto written = Must(Written(model, 21));
  ASSERT_EQ(written.OpsetVersion("com.microsoft"), 0);
  ASSERT_TRUE(SaveModel(written, file_).ok());
  const auto session = Open();
  EXPECT_TRUE(session.ok()) << session.status();
  const auto with_microsoft = Open({{"pagefuse.microsoft_ops", "on"}});
  EXPECT_THAT(std::string(with_microsoft.status().message()), HasSubstr("FusedMatMul"));
}

std::string NameOf(const ::testing::TestParamInfo<std::string>& info) {
  return StrCat("release", info.index);
}

INSTANTIATE_TEST_SUITE_P(All, OrtWithLibrary, ::testing::ValuesIn(OrtLibraries()), NameOf);

}  // namespace
}  // namespace pagefuse
