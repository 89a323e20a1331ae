// SPDX-License-Identifier: Apache-2.0
// A decode step like the one before infers no shapes and takes no memory, wherever it runs.
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "fake_context.h"
#include "must.h"
#include "paths.h"
#include "tiny_decoder.h"
#include <gtest/gtest.h>

#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ops/kernels/formats/weight_format.h"
#include "pagefuse/ops/registry/registry.h"
#include "pagefuse/runtime/paged_model.h"

namespace pagefuse {
namespace {

struct Decoder {
  const char* name;
  const char* file = nullptr;  // null: TinyDecoder
  const char* kv_cache = "none";
  const char* weights = "float32";
  int64_t window = 0;
};
void PrintTo(const Decoder& decoder, std::ostream* out) { *out << decoder.name; }

constexpr char kGemma3[] = "models/gemma3_A18/model.onnx";

// All tokens of the test lie in one block of each sequence, so that tables keep their width.
std::unique_ptr<PagedModel> Load(const Decoder& decoder, std::shared_ptr<DeviceContext> device) {
  PagedModelOptions options{.kv_cache = decoder.kv_cache, .block_size = 64};
  options.session.num_threads = 1;
  options.session.device = std::move(device);
  if (std::string(decoder.weights) != "float32") {
    UseWeights(Must(FindWeightFormat(decoder.weights)), options.session);
  }
  Model model = decoder.file == nullptr ? TinyDecoder(decoder.window)
                                        : Must(LoadModel(SourcePath(decoder.file)));
  return Must(PagedModel::Create(std::move(model), options));
}

// Steps of two sequences, of one token each.
void ExpectThatStepsAddNothing(PagedModel& paged) {
  constexpr int kWarm = 3, kSteps = 24;
  Must(paged.Reserve({60, 60}, 32));
  std::vector<PagedModel::Tokens> step;
  for (const int64_t first : {1, 2}) {
    step.push_back({paged.cache().AddSequence(), {first, 5, 3, 9, 4}});
  }
  Must(paged.Step(step));
  SessionStats warm;
  for (int i = 0; i < kWarm + kSteps; ++i) {
    if (i == kWarm) warm = paged.session().stats();
    for (PagedModel::Tokens& tokens : step) tokens.ids = {(i + tokens.ids.back()) % 20};
    Must(paged.Step(step));
  }
  EXPECT_GT(warm.inferences, 0);
  EXPECT_EQ(paged.session().stats().inferences, warm.inferences);
  EXPECT_EQ(paged.session().stats().allocations, warm.allocations);
}

class DecodeSteps : public ::testing::TestWithParam<Decoder> {};

INSTANTIATE_TEST_SUITE_P(
    Decoders, DecodeSteps,
    ::testing::Values(Decoder{"Tiny"}, Decoder{.name = "TinyWindow", .window = 6},
                      Decoder{.name = "TinyInt8", .kv_cache = "int8_per_token_head"},
                      Decoder{.name = "TinyBf16", .weights = "bf16"},
                      Decoder{.name = "Gemma3", .file = kGemma3},
                      Decoder{.name = "Gemma3TurboQuant",
                              .file = kGemma3,
                              .kv_cache = "turboquant_4bit_nc",
                              .weights = "bf16"},
                      Decoder{.name = "Gemma3Int4",
                              .file = kGemma3,
                              .kv_cache = "fp8_per_token_head",
                              .weights = "int4"}),
    [](const auto& info) { return info.param.name; });

TEST_P(DecodeSteps, InferNoShapesAndTakeNoMemory) {
  ExpectThatStepsAddNothing(*Load(GetParam(), nullptr));
}

TEST_P(DecodeSteps, DoNeitherOnADevice) {
  const OpRegistry registry = pagefuse::WithFakeKernels();
  const ScopedOpRegistry scope(registry);
  const auto paged = Load(GetParam(), std::make_shared<pagefuse::FakeContext>());
  ExpectThatStepsAddNothing(*paged);
  // What the step is told goes there in one.
  EXPECT_EQ(paged->session().stats().host_steps, 0);
  EXPECT_EQ(paged->session().stats().device_copies, 1);
}

}  // namespace
}  // namespace pagefuse
