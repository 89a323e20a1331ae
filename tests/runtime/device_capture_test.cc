// SPDX-License-Identifier: Apache-2.0
// Work that a device is asked for at once: what later runs with the same shapes get of it, and when it is not.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fake_context.h"
#include "must.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/ir/text/text.h"
#include "pagefuse/ops/registry/registry.h"
#include "pagefuse/runtime/padded_step.h"
#include "pagefuse/runtime/session.h"
#include "pagefuse/runtime/step_error.h"

namespace pagefuse {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DeviceCapture : public ::testing::Test {
 protected:
  DeviceCapture() : registry_(WithFakeKernels()), scope_(registry_) {}

  std::unique_ptr<Session> Load(const char* text, bool device_graphs = true) {
    SessionOptions options{.optimise = false, .load_passes = false};
    options.device = context_;
    options.device_graphs = device_graphs;
    return Must(Session::Create(Must(ParseModel(text)), options));
  }

  static std::vector<float> ValuesOf(const Tensor& tensor) {
    return {tensor.values<float>().begin(), tensor.values<float>().end()};
  }

  std::shared_ptr<FakeContext> context_ = std::make_shared<FakeContext>();
  OpRegistry registry_;
  ScopedOpRegistry scope_;
};

constexpr char kSquares[] = R"(
    <ir_version: 10, opset_import: ["" : 24]>
    g (float[n] x, int64[n] at) => (float[n] y) <int64 one = {1}> {
      next = Add (at, one)
      square = Mul (x, x)
      y = Gather (square, next)
    })";

std::vector<float> RunSquares(Session& session, float first, int64_t at) {
  const auto outputs = Must(session.Run({{"x", Tensor::Of<float>({2}, {first, first + 1})},
                                         {"at", Tensor::Of<int64_t>({2}, {at, -1})}}));
  return {outputs[0].values<float>().begin(), outputs[0].values<float>().end()};
}

TEST_F(DeviceCapture, RunsWithTheSameShapesAreAskedForAtOnce) {
  const auto session = Load(kSquares);
  for (int run = 0; run < 6; ++run) {
    const auto first = static_cast<float>(run);
    const float later = (first + 1) * (first + 1);
    // What the host computes in front of the device is that of each run too.
    EXPECT_THAT(RunSquares(*session, first, 0), ElementsAre(later, first * first)) << run;
    EXPECT_THAT(RunSquares(*session, first, -1), ElementsAre(first * first, first * first)) << run;
  }
  // The first takes memory, the second finds that it has all.
  EXPECT_EQ(session->stats().replays, 10);
  EXPECT_EQ(session->stats().device_copies, 1);
  EXPECT_THAT(session->DeviceReport(), HasSubstr("10 steps as graphs"));
}

TEST_F(DeviceCapture, ValuesAreCheckedAllTheSame) {
  const auto session = Load(kSquares);
  for (int run = 0; run < 4; ++run) RunSquares(*session, 1, 0);
  const auto status =
      session
          ->Run({{"x", Tensor::Of<float>({2}, {1, 2})}, {"at", Tensor::Of<int64_t>({2}, {0, 1})}})
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("index 2 is out of range"));
  EXPECT_THAT(RunSquares(*session, 1, 0), ElementsAre(4, 1));
}

TEST_F(DeviceCapture, IsSwitchedOff) {
  const auto session = Load(kSquares, /*device_graphs=*/false);
  for (int run = 0; run < 4; ++run) EXPECT_THAT(RunSquares(*session, 2, 0), ElementsAre(9, 4));
  EXPECT_EQ(session->stats().replays, 0);
}

constexpr char kInsert[] = R"(
    <ir_version: 10, opset_import: ["" : 24, "pagefuse" : 1]>
    g (float[4, 1, 1, 2] cache, float[4, 1, 1, 2] values, float[1, 1, 2] row, int64[1] at)
        => (float[4, 1, 1, 2] out, float[4, 1, 1, 2] values_out) {
      new = Neg (row)
      out, values_out = pagefuse.PagedCacheInsert (new, row, cache, values, at)
    })";

// A cache elsewhere than before is not the one that was captured.
TEST_F(DeviceCapture, OtherMemoryIsOtherWork) {
  const auto session = Load(kInsert);
  const auto cache = [&] {
    return Must(Tensor::Allocate(DataType::kFloat, {4, 1, 1, 2}, context_->memory()));
  };
  const Tensor values = cache();
  const Tensor caches[] = {cache(), cache()};
  for (int64_t run = 0; run < 8; ++run) {
    const Tensor& used = caches[run / 4];
    const auto result = Must(session->Run({{"cache", used},
                                           {"values", values},
                                           {"row", Tensor::Of<float>({1, 1, 2}, {1, 2})},
                                           {"at", Tensor::Of<int64_t>({1}, {run % 4})}}));
    EXPECT_EQ(result[0].data(), used.data());
  }
  for (const Tensor& used : caches) {
    std::vector<float> found(8);
    Must(context_->CopyToHost(found.data(), used.data(), 32));
    EXPECT_THAT(found, ElementsAre(-1, -2, -1, -2, -1, -2, -1, -2));
  }
  EXPECT_GT(session->stats().replays, 2);
}

TEST_F(DeviceCapture, ANodeOnTheHostBehindTheDevicePreventsIt) {
  const auto session = Load(R"(
      <ir_version: 10, opset_import: ["" : 24]>
      g (float[4] x) => (float[n] y) {
        a = Neg (x)
        places = NonZero (a)
        row = Squeeze (places)
        y = Gather (a, row)
      })");
  const Tensor x = Tensor::Of<float>({4}, {1, 0, 0, 3});
  for (int run = 0; run < 4; ++run) {
    EXPECT_THAT(ValuesOf(Must(session->Run({{"x", x}}))[0]), ElementsAre(-1, -3));
  }
  EXPECT_EQ(session->stats().replays, 0);
  EXPECT_THAT(session->DeviceReport(), HasSubstr("no graphs of steps, as node"));
  EXPECT_THAT(session->DeviceReport(), HasSubstr("(NonZero) runs on the host"));
}

// A kernel that looks at indices itself, as those of devices do.
absl::Status LookAndGather(FakeContext& device, const KernelArgs& args) {
  const VeiledMemory::Open open(device.memory());
  const int64_t rows = args.inputs[0].dim(0);
  for (int64_t i = 0; i < args.outputs[0].size(); ++i) {
    const int64_t index = args.inputs[1].as<const int64_t>()[i];
    const bool is_one = index >= 0 && index < rows;
    args.outputs[0].as<float>()[i] = is_one ? args.inputs[0].as<const float>()[index] : 0;
    if (is_one || args.index_error->step != 0) continue;
    *args.index_error = {.step = args.step, .input = 1, .element = i, .value = index};
  }
  return absl::OkStatus();
}

Kernel LookingGather() {
  return {.name = "looks",
          .device = Device::kCuda,
          .priority = 2000,
          .checks_indices = true,
          .run = [](KernelArgs& args) {
            auto& device = *static_cast<FakeContext*>(args.device->queue());
            return device.Do([&device, args] { return LookAndGather(device, args); });
          }};
}

TEST_F(DeviceCapture, IndicesThatAKernelFoundWrongAreToldInTheWordsOfTheOp) {
  Must(registry_.AddKernel("", "Gather", LookingGather()));
  const auto session = Load(R"(
      <ir_version: 10, opset_import: ["" : 24]>
      g (float[n] x, float[m] at) => (float[m] y) {
        twice = Add (at, at)
        places = Cast <to = 7> (twice)
        y = Gather (x, places)
      })");
  const Tensor x = Tensor::Of<float>({3}, {5, 6, 7});
  for (int run = 0; run < 5; ++run) {
    EXPECT_THAT(ValuesOf(Must(session->Run({{"x", x}, {"at", Tensor::Of<float>({1}, {1})}}))[0]),
                ElementsAre(7));
    const auto status = session->Run({{"x", x}, {"at", Tensor::Of<float>({1}, {2})}}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << run;
    EXPECT_THAT(std::string(status.message()), HasSubstr("index 4 is out of range")) << run;
  }
  EXPECT_GT(session->stats().replays, 4);
}

// Of two sequences with a token each: sizes alone do not tell rows of tokens from rows of sequences.
TEST_F(DeviceCapture, AnIndexOfATokenIsToldFromThatOfASequence) {
  Must(registry_.AddKernel("", "Gather", LookingGather()));
  const auto session = Load(R"(
      <ir_version: 10, opset_import: ["" : 24]>
      g (float[n] x, int32[starts] query_start_loc, float[num_tokens] t, float[num_sequences] s)
          => (float[num_tokens] y, float[num_sequences] z) {
        of_tokens = Add (t, t)
        tokens = Cast <to = 7> (of_tokens)
        y = Gather (x, tokens)
        of_sequences = Add (s, s)
        sequences = Cast <to = 7> (of_sequences)
        z = Gather (x, sequences)
      })");
  const auto token_of = [&](float token, float sequence) {
    const auto status = session
                            ->Run({{"x", Tensor::Of<float>({3}, {5, 6, 7})},
                                   {"query_start_loc", Tensor::Of<int32_t>({3}, {0, 1, 2})},
                                   {"t", Tensor::Of<float>({2}, {0, token})},
                                   {"s", Tensor::Of<float>({2}, {0, sequence})}})
                            .status();
    EXPECT_FALSE(status.ok());
    return TokenOf(status);
  };
  EXPECT_EQ(token_of(4, 0), 1);
  EXPECT_EQ(token_of(0, 4), std::nullopt);
}

TEST(PaddedStepTest, HasFewSizes) {
  std::vector<int64_t> sizes;
  for (int64_t sequences = 1; sequences <= 200; ++sequences) {
    const int64_t size = PaddedSequences(sequences);
    EXPECT_GE(size, sequences);
    if (sizes.empty() || sizes.back() != size) sizes.push_back(size);
  }
  EXPECT_THAT(sizes, ElementsAre(1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256));
}

TEST(PaddedStepTest, FillsUpWithSequencesOfNothing) {
  StepMetadata step;
  step.positions = {7, 0, 3};
  step.query_start_loc = {0, 1, 2, 3};
  step.seq_lens = {8, 1, 4};
  step.logit_rows = {0, 1, 2};
  step.groups.push_back(
      {.block_table = {1, 2, 3, -1, 4, -1}, .max_blocks = 2, .slot_mapping = {9, 5, 2}});
  ASSERT_TRUE(PaddedStep::Suits(step));
  PaddedStep padded;
  padded.Fill({20, 21, 22}, step);
  EXPECT_THAT(padded.input_ids, ElementsAre(20, 21, 22, 0));
  EXPECT_THAT(padded.metadata.positions, ElementsAre(7, 0, 3, 0));
  EXPECT_THAT(padded.metadata.query_start_loc, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(padded.metadata.seq_lens, ElementsAre(8, 1, 4, 0));
  EXPECT_THAT(padded.metadata.logit_rows, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(padded.metadata.groups[0].block_table, ElementsAre(1, 2, 3, -1, 4, -1, 0, 0));
  EXPECT_THAT(padded.metadata.groups[0].slot_mapping, ElementsAre(9, 5, 2, -1));
  step.logit_rows = {2};
  EXPECT_FALSE(PaddedStep::Suits(step));
}

}  // namespace
}  // namespace pagefuse
