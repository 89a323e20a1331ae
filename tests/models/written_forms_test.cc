// SPDX-License-Identifier: Apache-2.0
// Every form of a graph that `opt` writes, with each stage left out, as ONNX with function bodies and without
// and as text, is read again and paged, and gives the tokens of the export.
#include <algorithm>
#include <filesystem>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "tests/models/model_data.h"

#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/ops/cache/cache_settings.h"
#include "pagefuse/passes/pipeline/pipeline.h"
#include "pagefuse/runtime/engine.h"

namespace pagefuse {
namespace {

// What is left out, or what runs alone.
enum class Stages {
  kAll,
  kNoPages,                // --no-page
  kCanonicalizeAlone,      // --passes
  kRecogniseAlone,         // what runs up to recognition
  kWithoutCanonicalize,    // --disable-pass, --no-page
  kWithoutRecognise,       // likewise
  kWithoutPage,            // --disable-pass alone
  kWithoutFuse,            // likewise
  kWithoutFuseAndPages,    // --no-page too
  kWithoutChainsAndPages,  // likewise
};
enum class Written { kBodies, kOps, kText };

struct Form {
  const char* name;
  Stages stages;
  Written written;
};
constexpr Form kForms[] = {
    {"all", Stages::kAll, Written::kBodies},
    {"all_ops", Stages::kAll, Written::kOps},
    {"all_text", Stages::kAll, Written::kText},
    {"no_pages", Stages::kNoPages, Written::kBodies},
    {"no_pages_ops", Stages::kNoPages, Written::kOps},
    {"no_pages_text", Stages::kNoPages, Written::kText},
    {"canonicalize", Stages::kCanonicalizeAlone, Written::kBodies},
    {"recognise", Stages::kRecogniseAlone, Written::kBodies},
    {"recognise_ops", Stages::kRecogniseAlone, Written::kOps},
    {"without_canonicalize", Stages::kWithoutCanonicalize, Written::kOps},
    {"without_recognise", Stages::kWithoutRecognise, Written::kOps},
    {"without_page", Stages::kWithoutPage, Written::kOps},
    {"without_fuse", Stages::kWithoutFuse, Written::kBodies},
    {"without_fuse_no_pages", Stages::kWithoutFuseAndPages, Written::kOps},
    {"without_chains_no_pages", Stages::kWithoutChainsAndPages, Written::kBodies},
};

std::vector<std::string> PipelineNames() {
  std::vector<std::string> names;
  for (const auto& pass : DecoderPipeline()) names.emplace_back(pass->name());
  return names;
}

// The passes from one on to another, in order.
std::vector<std::string> Between(const std::string& first, const std::string& end) {
  const std::vector<std::string> names = PipelineNames();
  const auto from = std::find(names.begin(), names.end(), first);
  const auto to = std::find(from, names.end(), end);
  EXPECT_TRUE(from != names.end() && to != names.end()) << first << ", " << end;
  return {from, to};
}

constexpr char kFirst[] = "inline-functions", kRecognise[] = "tables-by-sequence",
               kPage[] = "insert-paged-cache", kQuantise[] = "quantise-kv-cache",
               kFuse[] = "fuse-index-logits", kWeights[] = "quantise-weights";

// Those of a stage that no other stage has.
std::vector<std::string> OwnOf(const std::string& first, const std::string& end) {
  const std::vector<std::string> all = PipelineNames();
  std::vector<std::string> own;
  for (const std::string& name : Between(first, end)) {
    if (std::count(all.begin(), all.end(), name) == 1) own.push_back(name);
  }
  return own;
}

PipelineOptions OptionsOf(Stages stages) {
  PipelineOptions options;
  switch (stages) {
    case Stages::kAll:
      break;
    case Stages::kNoPages:
      options.page = false;
      break;
    case Stages::kCanonicalizeAlone:
      options.passes = Between(kFirst, kRecognise);
      break;
    case Stages::kRecogniseAlone:
      options.passes = Between(kFirst, kPage);
      break;
    case Stages::kWithoutCanonicalize:
      options.page = false;
      options.disabled = Between(kFirst, kRecognise);
      break;
    case Stages::kWithoutRecognise:
      options.page = false;
      options.disabled = OwnOf(kRecognise, kPage);
      break;
    case Stages::kWithoutPage:
      options.disabled = OwnOf(kPage, kQuantise);
      break;
    case Stages::kWithoutFuseAndPages:
      options.page = false;
      [[fallthrough]];
    case Stages::kWithoutFuse:
      options.disabled = OwnOf(kFuse, kWeights);
      break;
    case Stages::kWithoutChainsAndPages:
      options.page = false;
      options.disabled = {"fuse-elementwise"};
      break;
  }
  return options;
}

// The graph as a file has it, read back.
absl::StatusOr<Model> WrittenAndRead(Model model, Written written, const std::string& stem) {
  if (written == Written::kText) {
    return ParseModel(PrintModel(model, {.max_elements = -1, .value_infos = true}));
  }
  if (written == Written::kBodies) {
    const auto report = RunPipeline(model, {.passes = ExportStage()});
    if (!report.ok()) return report.status();
  }
  const absl::Status saved = SaveModel(model, stem + ".onnx");
  return saved.ok() ? LoadModel(stem + ".onnx") : absl::StatusOr<Model>(saved);
}

class WrittenForms : public testing::TestWithParam<std::tuple<const char*, Form>> {};

TEST_P(WrittenForms, ArePagedAgain) {
  const auto& [name, form] = GetParam();
  const Greedy greedy = LoadGreedy(name);
  Model model = LoadBundled(name);
  const auto report = RunPipeline(model, OptionsOf(form.stages));
  ASSERT_TRUE(report.ok()) << report.status();
  const std::string stem = testing::TempDir() + "/written_" + name + "_" + form.name;
  auto read = WrittenAndRead(std::move(model), form.written, stem);
  std::filesystem::remove(stem + ".onnx");
  ASSERT_TRUE(read.ok()) << read.status();
  const auto engine = Engine::Create(*std::move(read), {});
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_TRUE(CacheSettingsOf((*engine)->session().model()));
  constexpr int64_t kTokens = 12;
  const auto completions =
      (*engine)->Generate({{.prompt = greedy.prompt, .max_new_tokens = kTokens}});
  ASSERT_TRUE(completions.ok()) << completions.status();
  const std::vector<int64_t> expected(greedy.tokens.begin(), greedy.tokens.begin() + kTokens);
  EXPECT_EQ((*completions)[0].tokens, expected);
}

INSTANTIATE_TEST_SUITE_P(
    Exports, WrittenForms,
    testing::Combine(testing::Values("gemma3_A18", "gemma3_B18", "gemma3_D_int4", "gemma3_D_kvint8",
                                     "gemma3_D_paged", "gemma3_D_windowed", "deepseek_v3_B18",
                                     "deepseek_v32_A18", "deepseek_v4_A18"),
                     testing::ValuesIn(kForms)),
    [](const auto& info) {
      return std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param).name;
    });

}  // namespace
}  // namespace pagefuse
