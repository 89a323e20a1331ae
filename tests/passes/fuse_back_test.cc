// SPDX-License-Identifier: Apache-2.0
// An op's own decomposition fuses back to the op.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "gtest/gtest.h"
#include "must.h"
#include "paths.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/passes/pipeline/pipeline.h"

namespace pagefuse {
namespace {

constexpr std::string_view kFolder = "tests/data/decompositions/";

// The ops that the pass is for.
bool IsFusedByResults(const std::string& op) {
  static constexpr std::string_view kOps[] = {
      "CombineTopKWindow",   "CompressCacheInsert", "CompressorStateInsert", "IndexerKGather",
      "IndexerKQuantInsert", "IndexerQRopeQuant",   "InvRopeQuant",          "KCacheDequantGather",
      "KCacheQuantInsert",   "MergeAttnStates",     "MlaCacheInsert",        "MlaGatherUpconvert",
      "PagedCacheInsert",    "QNormRopeKvInsert",   "ReqIndexToSlot",        "TurboQuantDequant",
      "TurboQuantInsert"};
  return std::find(std::begin(kOps), std::end(kOps), op) != std::end(kOps);
}

// The ops whose matches are read by element.
bool IsReadByElement(const std::string& op) {
  static constexpr std::string_view kOps[] = {"MqaLogits", "PagedAttention", "PagedMqaLogits",
                                              "SparseMlaAttention", "TurboQuantAttention"};
  return std::find(std::begin(kOps), std::end(kOps), op) != std::end(kOps);
}

std::vector<std::string> Decompositions() {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(SourcePath(kFolder))) {
    const std::string name = file.path().stem().string();
    const std::string op = name.substr(0, name.find('.'));
    if (IsFusedByResults(op) || IsReadByElement(op)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

class FuseBack : public ::testing::TestWithParam<std::string> {};

TEST_P(FuseBack, GivesTheOp) {
  std::ifstream file(SourcePath(StrCat(kFolder, GetParam(), ".txt")));
  std::stringstream text;
  text << file.rdbuf();
  auto model = Must(ParseModel(text.str()));
  PipelineOptions options;
  options.page = false;
  options.disabled = {"fuse-elementwise"};
  options.explain = {"*"};
  const auto report = Must(RunPipeline(model, options));
  std::vector<std::string> fused;
  for (const auto& node : model.graph->nodes()) {
    if (node->domain() == "pagefuse") fused.push_back(node->op_type());
  }
  const std::string op = GetParam().substr(0, GetParam().find('.'));
  std::string misses;
  for (const MissedMatch& miss : report.misses)
    StrAppend(&misses, miss.rule, ": ", miss.condition, "\n");
  EXPECT_EQ(fused, std::vector<std::string>{op}) << misses;
}

INSTANTIATE_TEST_SUITE_P(Decompositions, FuseBack, ::testing::ValuesIn(Decompositions()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

}  // namespace
}  // namespace pagefuse
