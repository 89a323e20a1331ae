// SPDX-License-Identifier: Apache-2.0
// A library of custom ops that somebody wrote for ONNX Runtime computes the same there and here.
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hosted.h"
#include "must.h"
#include "ort_libraries.h"
#include "paths.h"
#include "tools/cli/temporary_folder.h"
#include "tools/ort/ort_custom_ops.h"
#include "tools/ort/ort_host.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"

namespace pagefuse {
namespace {

using Feeds = std::map<std::string, Tensor>;

class OrtThirdParty : public ::testing::TestWithParam<std::string> {
 protected:
  static void SetUpTestSuite() {
    // The library keeps the table of functions that it got last, so each runtime has one of its own.
    const tools::TemporaryFolder folder;
    const auto copy = Must(tools::CopyOfLibrary(PAGEFUSE_THIRD_PARTY, folder));
    const auto ops = Must(OpsOfLibrary(copy));
    ASSERT_TRUE(Publish(ops).ok());
  }

  // In the release of the test.
  static absl::StatusOr<std::vector<Tensor>> InOrt(const Model& model, const Feeds& feeds) {
    auto library = tools::OrtLibrary::Load(GetParam());
    if (!library.ok()) return library.status();
    const std::string file =
        (std::filesystem::temp_directory_path() / StrCat("pagefuse_ort_", getpid(), ".onnx"))
            .string();
    const absl::Status saved = SaveModel(model, file);
    if (!saved.ok()) return saved;
    auto session = tools::OrtSession::Create(*library, file,
                                             {.custom_ops = PAGEFUSE_THIRD_PARTY, .threads = 2});
    std::filesystem::remove(file);
    if (!session.ok()) return session.status();
    std::vector<std::string> names;
    for (const Value* output : model.graph->outputs()) names.push_back(output->name());
    return (*session)->Run(feeds, names);
  }
};

TEST_P(OrtThirdParty, AllKindsOfOpsGiveTheSame) {
  auto model = Must(LoadModel(SourcePath("tests/data/third_party.onnxtxt")));
  for (const int64_t rows : {3, 6, 300}) {
    std::vector<float> x(rows * 6);
    for (size_t i = 0; i < x.size(); ++i) x[i] = 0.25F * static_cast<float>(i % 11) - 1;
    const Feeds feeds = {{"x", Tensor::Of<float>({rows, 6}, x)},
                         {"d", Tensor::Of<double>({rows}, std::vector<double>(rows, 0.5))},
                         {"i", Tensor::Of<int64_t>({rows}, std::vector<int64_t>(rows, rows))}};
    const auto there = Must(InOrt(model, feeds));
    auto own = LoadModel(SourcePath("tests/data/third_party.onnxtxt"));
    const auto here = Must(RunModel(*std::move(own), feeds));
    ASSERT_EQ(here.size(), there.size());
    for (size_t i = 0; i < here.size(); ++i) {
      EXPECT_TRUE(here[i].IdenticalTo(there[i])) << model.graph->outputs()[i]->name();
    }
  }
}

// What a library refuses, both say.
TEST_P(OrtThirdParty, ErrorsOfTheLibraryAreTheSame) {
  const std::string ports = "(float[N] x) => (float[M] y, float[M] z, float[M] w)";
  const std::string body = "  y, z, w = third.party.Halves (x)";
  const Feeds feeds = {{"x", Tensor::Of<float>({4}, {1, 2, 3, 4})}};
  constexpr char kSentence[] = "the first dim cannot be cut so often";
  EXPECT_THAT(std::string(InOrt(ThirdPartyModel(ports, body), feeds).status().message()),
              testing::HasSubstr(kSentence));
  EXPECT_THAT(std::string(RunModel(ThirdPartyModel(ports, body), feeds).status().message()),
              testing::HasSubstr(kSentence));
}

INSTANTIATE_TEST_SUITE_P(Releases, OrtThirdParty, ::testing::ValuesIn(OrtLibraries()),
                         [](const auto& info) { return StrCat("Release", info.index); });

}  // namespace
}  // namespace pagefuse
