// Every golden case in ONNX Runtime, by the bodies that are written for it and by our kernels.
#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <unistd.h>

#include "foreign.h"
#include "gtest/gtest.h"
#include "ort_libraries.h"
#include "paths.h"
#include "tools/ort_host.h"
#include "tools/testcase.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/onnx_io.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/passes/export/export.h"

namespace pagefuse {
namespace {

class OrtGolden : public ::testing::TestWithParam<std::string> {};

// By kernels if `custom_ops` is a library of them.
absl::StatusOr<std::vector<Tensor>> RunInOrt(const std::string& path, const std::string& custom_ops,
                                             const Model& model,
                                             const std::map<std::string, Tensor>& feeds) {
  PF_ASSIGN_OR_RETURN(auto library, tools::OrtLibrary::Load(path));
  PF_ASSIGN_OR_RETURN(const Model written, Written(model, kOldestTarget));
  const std::string file =
      (std::filesystem::temp_directory_path() / StrCat("pagefuse_ort_", getpid(), ".onnx"))
          .string();
  PF_RETURN_IF_ERROR(SaveModel(written, file));
  auto session = tools::OrtSession::Create(library, file, {.custom_ops = custom_ops, .threads = 1});
  std::filesystem::remove(file);
  PF_RETURN_IF_ERROR(session.status());
  std::vector<std::string> names;
  for (const Value* output : written.graph->outputs()) names.push_back(output->name());
  auto bytes = AsBytes(feeds);
  PF_RETURN_IF_ERROR(bytes.status());
  PF_ASSIGN_OR_RETURN(std::vector<Tensor> outputs, (*session)->Run(*bytes, names));
  return FromBytes(std::move(outputs), model);
}

void CheckInEveryRelease(const std::string& folder, const std::string& custom_ops) {
  absl::StatusOr<TestCase> test_case = LoadTestCase(folder);
  ASSERT_TRUE(test_case.ok()) << test_case.status();
  LetNansDiffer(*test_case);
  for (const std::string& path : OrtLibraries()) {
    SCOPED_TRACE(path);
    const auto run = [&](const Model& model, const std::map<std::string, Tensor>& feeds) {
      return RunInOrt(path, custom_ops, model, feeds);
    };
    const absl::Status status = CheckTestCase(*test_case, run);
    EXPECT_TRUE(status.ok()) << status;
  }
}

TEST_P(OrtGolden, BodyGivesTheAnswer) { CheckInEveryRelease(GetParam(), ""); }

TEST_P(OrtGolden, KernelGivesTheAnswer) { CheckInEveryRelease(GetParam(), CustomOpsLibrary()); }

std::string NameOf(const ::testing::TestParamInfo<std::string>& info) {
  return GoldenName(info.param);
}

INSTANTIATE_TEST_SUITE_P(All, OrtGolden, ::testing::ValuesIn(GoldenFoldersWithAnswers()), NameOf);

}  // namespace
}  // namespace pagefuse
