// SPDX-License-Identifier: Apache-2.0
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
#include "must.h"
#include "ort_libraries.h"
#include "paths.h"
#include "tools/check/testcase.h"
#include "tools/ort/ort_host.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/passes/lower/lower.h"

namespace pagefuse {
namespace {

class OrtGolden : public ::testing::TestWithParam<std::string> {};

struct Way {
  std::string custom_ops = {};  // kernels, if it is a library of them
  bool keep_float8 = false;
};

absl::StatusOr<std::vector<Tensor>> RunInOrt(const std::string& path, const Way& way,
                                             const Model& model,
                                             const std::map<std::string, Tensor>& feeds) {
  PF_ASSIGN_OR_RETURN(auto library, tools::OrtLibrary::Load(path));
  PF_ASSIGN_OR_RETURN(const Model written, Written(model, kOldestTarget, way.keep_float8));
  const std::string file =
      (std::filesystem::temp_directory_path() / StrCat("pagefuse_ort_", getpid(), ".onnx"))
          .string();
  PF_RETURN_IF_ERROR(SaveModel(written, file));
  auto session =
      tools::OrtSession::Create(library, file, {.custom_ops = way.custom_ops, .threads = 1});
  std::filesystem::remove(file);
  PF_RETURN_IF_ERROR(session.status());
  std::vector<std::string> names;
  for (const Value* output : written.graph->outputs()) names.push_back(output->name());
  auto bytes = way.keep_float8 ? feeds : AsBytes(feeds);
  PF_RETURN_IF_ERROR(bytes.status());
  PF_ASSIGN_OR_RETURN(std::vector<Tensor> outputs, (*session)->Run(*bytes, names));
  return FromBytes(std::move(outputs), model);
}

void CheckInEveryRelease(const std::string& folder, const Way& way) {
  TestCase test_case = Must(LoadTestCase(folder));
  LetNansDiffer(test_case);
  for (const std::string& path : OrtLibraries()) {
    SCOPED_TRACE(path);
    const auto run = [&](const Model& model, const std::map<std::string, Tensor>& feeds) {
      return RunInOrt(path, way, model, feeds);
    };
    const absl::Status status = CheckTestCase(test_case, run);
    EXPECT_TRUE(status.ok()) << status;
  }
}

TEST_P(OrtGolden, BodyGivesTheAnswer) { CheckInEveryRelease(GetParam(), {}); }

TEST_P(OrtGolden, KernelGivesTheAnswer) {
  CheckInEveryRelease(GetParam(), {.custom_ops = CustomOpsLibrary()});
}

// Files that keep float8 are for runtimes with the library.
TEST_P(OrtGolden, KernelTakesFloat8) {
  const TestCase test_case = Must(LoadTestCase(GetParam()));
  const auto& inputs = test_case.model.graph->inputs();
  const auto is_float8 = [](const Value* input) { return IsFloat8(input->dtype()); };
  if (std::none_of(inputs.begin(), inputs.end(), is_float8)) return;
  CheckInEveryRelease(GetParam(), {.custom_ops = CustomOpsLibrary(), .keep_float8 = true});
}

std::string NameOf(const ::testing::TestParamInfo<std::string>& info) {
  return GoldenName(info.param);
}

INSTANTIATE_TEST_SUITE_P(All, OrtGolden, ::testing::ValuesIn(GoldenFoldersWithAnswers()), NameOf);

}  // namespace
}  // namespace pagefuse
