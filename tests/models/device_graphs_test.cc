// SPDX-License-Identifier: Apache-2.0
// Exports over paged caches as they are planned for a device with the kernels of this build: from the numbers of a step to its
// logits nothing runs on the host, and nothing is copied. The device here is none: nothing is run on it.
#include <algorithm>
#include <cctype>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "fake_context.h"
#include "must.h"
#include "paths.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ops/kernels/formats/weight_format.h"
#include "pagefuse/ops/registry/registry.h"
#include "pagefuse/runtime/paged_model.h"

namespace pagefuse {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct PlannedGraph {
  std::string file;  // below the top folder
  std::string kv_cache = "none", weights = "float32";
  std::string index_keys = "", index_query = "none";  // of DeepSeek V3.2 and V4
};

std::string NameOf(const PlannedGraph& graph) {
  std::string name = graph.file.substr(graph.file.find('/') + 1);
  name = StrCat(name.substr(0, name.rfind('.')), "_", graph.kv_cache, "_", graph.weights);
  if (!graph.index_keys.empty()) StrAppend(&name, "_", graph.index_keys, "_", graph.index_query);
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}
void PrintTo(const PlannedGraph& graph, std::ostream* out) { *out << NameOf(graph); }

std::vector<PlannedGraph> Graphs() {
  std::vector<PlannedGraph> graphs;
  const std::string folder = "models/gemma3_", file = "/model.onnx";
  for (const char* cache : {"none", "int8_per_token_head", "fp8_per_token_head",
                            "int4_per_token_head", "turboquant_4bit_nc"}) {
    for (const char* weights : {"float32", "bf16", "int8", "int4"}) {
      graphs.push_back({StrCat(folder, "A18", file), cache, weights});
    }
    for (const char* name : {"A23", "B18", "D_fp32", "D_int4", "D_windowed"}) {
      graphs.push_back({StrCat(folder, name, file), cache});
    }
    graphs.push_back({StrCat(folder, "recall/model_with_past.onnx"), cache, "bf16"});
  }
  for (const char* weights : {"bf16", "int8", "int4"}) {
    for (const char* name : {"A23", "B18", "D_fp32"}) {
      graphs.push_back({StrCat(folder, name, file), "none", weights});
    }
  }
  // Caches of their own.
  for (const char* name : {"D_kvint8", "D_paged"}) {
    graphs.push_back({StrCat(folder, name, file)});
  }
  for (const char* name :
       {"two_layers", "two_grouped_layers", "multi_head_attention", "sinks",
        "shared_keys_and_values", "bloom", "falcon", "mpt", "alibi_in_the_mask"}) {
    graphs.push_back({StrCat("tests/data/decoders/", name, ".onnxtxt")});
  }
  return graphs;
}

std::vector<PlannedGraph> DeepSeekGraphs() {
  std::vector<PlannedGraph> graphs;
  const std::string folder = "models/deepseek_", file = "/model.onnx";
  for (const char* weights : {"float32", "bf16", "int8", "int4"}) {
    graphs.push_back({StrCat(folder, "v4_B18/prefill.onnx"), "none", weights});
    for (const char* name : {"v3_A18", "v3_B18", "v32_A18", "v32_B18", "v4_A18"}) {
      graphs.push_back({StrCat(folder, name, file), "none", weights});
    }
  }
  for (const char* cache : {"none", "bf16", "fp8"}) {
    graphs.push_back({StrCat(folder, "v3p_B18", file), cache});
    for (const char* name : {"v32p_A18", "v4p_A18"}) {
      for (const char* keys : {"none", "bf16", "fp8", "mxfp4"}) {
        graphs.push_back({StrCat(folder, name, file), cache, "float32", keys});
      }
      graphs.push_back({StrCat(folder, name, file), cache, "float32", "fp8", "fp8"});
    }
  }
  return graphs;
}

class DeviceGraphs : public ::testing::TestWithParam<PlannedGraph> {};
INSTANTIATE_TEST_SUITE_P(Exports, DeviceGraphs, ::testing::ValuesIn(Graphs()),
                         [](const auto& info) { return NameOf(info.param); });
INSTANTIATE_TEST_SUITE_P(DeepSeek, DeviceGraphs, ::testing::ValuesIn(DeepSeekGraphs()),
                         [](const auto& info) { return NameOf(info.param); });

TEST(DeviceKernels, AreThereForEveryOpOfOurDomain) {
  for (const OpDef* op : OpRegistry::Global().ops()) {
    if (op->domain() != "pagefuse") continue;
    EXPECT_TRUE(std::ranges::any_of(op->kernels(), [](const Kernel& kernel) {
      return kernel.device == Device::kCuda;
    })) << op->name();
  }
}

TEST_P(DeviceGraphs, LeaveNothingToTheHost) {
  const PlannedGraph& graph = GetParam();
  PagedModelOptions options{.kv_cache = graph.kv_cache};
  options.session.device = std::make_shared<FakeContext>();
  if (graph.weights != "float32")
    UseWeights(Must(FindWeightFormat(graph.weights)), options.session);
  if (!graph.index_keys.empty()) {
    options.session.pipeline.options["indexer_cache"] = graph.index_keys;
    options.session.pipeline.options["indexer_query"] = graph.index_query;
  }
  const auto paged = Must(PagedModel::Create(Must(LoadModel(SourcePath(graph.file))), options));
  // Arithmetic on what a step is told comes first, and is told to the device with it.
  EXPECT_EQ(paged->session().stats().host_steps, 0) << paged->session().DeviceReport();
  EXPECT_THAT(paged->session().DeviceReport(), Not(HasSubstr("no graphs of steps")));
  int64_t on_device = 0;
  const std::vector<std::string> lines = absl::StrSplit(paged->session().KernelReport(), '\n');
  for (const std::string& line : lines) {
    if (absl::StrContains(line, ": copy to the ")) ADD_FAILURE() << line;
    on_device += absl::StrContains(line, " on the host") ? 0 : 1;
  }
  EXPECT_GT(on_device, 10);
}

}  // namespace
}  // namespace pagefuse
