// SPDX-License-Identifier: Apache-2.0
// The engine over a device whose memory the host cannot read: the same bits as on the host, through all that requests do.
#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

#include "fake_context.h"
#include "must.h"
#include "tiny_decoder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/runtime/engine.h"

namespace pagefuse {
namespace {

// All that a device draws by, and logprobs, for which rows come to the host.
void AddFilters(std::mt19937& random, SamplingOptions& sampling) {
  if (random() % 2 == 0) sampling.top_k = static_cast<int64_t>(1 + random() % 8);
  if (random() % 2 == 0) sampling.top_p = 0.9;
  if (random() % 2 == 0) sampling.min_p = 0.05;
  if (random() % 2 == 0) sampling.repetition_penalty = 1.2;
  if (random() % 2 == 0) sampling.frequency_penalty = 0.3;
  if (random() % 2 == 0) sampling.presence_penalty = -0.2;
  if (random() % 2 == 0) sampling.bias = {{3, 1.5}, {7, -100}};
  if (random() % 8 == 0) sampling.logprobs = 2;
}

// Prompts that begin alike, are drawn or not, branch, and keep logits.
Request RandomRequest(std::mt19937& random) {
  Request request;
  const auto length = static_cast<int64_t>(1 + random() % 30);
  const auto like = static_cast<int64_t>(random() % 4);
  for (int64_t t = 0; t < length; ++t) {
    const int64_t token = t < 9 ? 3 * t + like : static_cast<int64_t>(random());
    request.prompt.push_back(token % kTinyVocabulary);
  }
  request.max_new_tokens = static_cast<int64_t>(1 + random() % 16);
  request.samples = random() % 5 == 0 ? static_cast<int64_t>(2 + random() % 2) : 1;
  request.keep_logits = random() % 3 == 0;
  request.sampling.seed = random();
  if (random() % 2 == 0) request.sampling.temperature = 0.8;
  if (random() % 2 == 0) AddFilters(random, request.sampling);
  return request;
}

struct Case {
  const char* kv_cache;
  int64_t window;
  bool bf16_weights;
};

std::unique_ptr<Engine> Make(const Case& of, std::shared_ptr<DeviceContext> device,
                             bool device_graphs = true) {
  EngineOptions options{.kv_cache = of.kv_cache,
                        .block_size = 4,
                        .max_tokens_per_step = 24,
                        .max_sequences = 6,
                        .cache_tokens = 96};
  options.session.device = std::move(device);
  options.session.device_graphs = device_graphs;
  if (of.bf16_weights) UseWeights(Must(FindWeightFormat("bf16")), options.session);
  return Must(Engine::Create(TinyDecoder(of.window), options));
}

// What requests that nobody cancelled were answered, by request and sample.
struct Answer {
  std::vector<int64_t> tokens;
  std::vector<std::vector<float>> logits;
  bool operator==(const Answer&) const = default;
};
using Answers = std::map<std::pair<size_t, int64_t>, Answer>;

// So many steps, with requests that come and go between them.
Answers RunSteps(Engine& engine, uint32_t seed, int64_t steps) {
  std::mt19937 random(seed);
  Answers answers;
  std::vector<RequestId> requests;
  for (int64_t step = 0; step < steps; ++step) {
    if (random() % 4 == 0) {
      const auto keep = [&, i = requests.size()](int64_t sample, Completion completion) {
        if (completion.finish == FinishReason::kCancelled) return;
        Must(completion.error);
        answers[{i, sample}] = {std::move(completion.tokens), std::move(completion.logits)};
      };
      requests.push_back(Must(engine.Submit(RandomRequest(random), {.on_done = keep})));
    }
    if (!requests.empty() && random() % 60 == 0) engine.Cancel(requests.back());
    engine.Step();
  }
  while (engine.Step().tokens > 0) {
  }
  return answers;
}

// What was cancelled in one of them only is a matter of time.
void ExpectEqual(const Answers& host, const Answers& device) {
  int64_t compared = 0;
  for (const auto& [which, answer] : device) {
    const auto found = host.find(which);
    if (found == host.end()) continue;
    EXPECT_EQ(answer, found->second) << which.first;
    ++compared;
  }
  EXPECT_GT(compared, 300);
}

TEST(DeviceEngine, RandomStepsHaveTheBitsOfTheHost) {
  const OpRegistry registry = pagefuse::WithFakeKernels();
  const Case cases[] = {{"none", 0, true},
                        {"none", 6, false},
                        {"int8_per_token_head", 0, true},
                        {"int4_per_token_head", 6, true}};
  for (const Case& of : cases) {
    SCOPED_TRACE(of.kv_cache);
    const Answers host = RunSteps(*Make(of, nullptr), 11, 2500);
    EXPECT_GT(host.size(), 300u);
    const ScopedOpRegistry scope(registry);
    for (const bool device_graphs : {true, false}) {
      const auto context = std::make_shared<FakeContext>();
      const auto engine = Make(of, context, device_graphs);
      EXPECT_GT(context->memory().used(), 0u);
      ExpectEqual(host, RunSteps(*engine, 11, 2500));
      const SessionStats stats = engine->session().stats();
      EXPECT_EQ(stats.replays > 1000, device_graphs) << stats.replays;
      EXPECT_EQ(stats.prepared > 200, device_graphs) << stats.prepared;
      EXPECT_GT(engine->stats().device_draws, 1000);
      // All that comes again finds memory.
      RunSteps(*engine, 11, 500);
      EXPECT_EQ(engine->session().stats().allocations, stats.allocations);
    }
  }
}

// What sinks were told of requests of which one goes on to its end, one says when to end, and one throws.
struct Told {
  std::vector<std::vector<int64_t>> tokens = std::vector<std::vector<int64_t>>(3);
  std::vector<Completion> completions = std::vector<Completion>(3);
};

Told RunTold(std::shared_ptr<DeviceContext> device) {
  const auto engine = Make({"none", 0, false}, std::move(device));
  Told told;
  for (size_t i = 0; i < 3; ++i) {
    const auto first = static_cast<int64_t>(i);
    const auto take = [&told, i](const NewToken& token) {
      told.tokens[i].push_back(token.token);
      if (i == 2 && told.tokens[i].size() == 18) throw std::runtime_error("full");
      return i != 1 || told.tokens[i].size() < 11;
    };
    const auto keep = [&told, i](int64_t, Completion completion) {
      told.completions[i] = std::move(completion);
    };
    Must(engine->Submit({.prompt = {8 + first, 12, 13 + first}, .max_new_tokens = 24},
                        {.on_token = take, .on_done = keep}));
  }
  while (engine->Step().tokens > 0) {
  }
  EXPECT_EQ(engine->cache().pool().num_held(), 0);
  const SessionStats stats = engine->session().stats();
  EXPECT_EQ(stats.prepared > 0, engine->session().device() != nullptr)
      << stats.prepared << " of " << stats.replays;
  return told;
}

TEST(DeviceEngine, SinksAreToldWhileTheNextStepRuns) {
  const Told host = RunTold(nullptr);
  EXPECT_EQ(host.completions[0].finish, FinishReason::kLength);
  EXPECT_EQ(host.completions[1].finish, FinishReason::kEnded);
  EXPECT_EQ(host.completions[2].finish, FinishReason::kFailed);
  const OpRegistry registry = pagefuse::WithFakeKernels();
  const ScopedOpRegistry scope(registry);
  const Told device = RunTold(std::make_shared<FakeContext>());
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(device.tokens[i], host.tokens[i]);
    EXPECT_EQ(device.completions[i].tokens, host.completions[i].tokens);
    EXPECT_EQ(device.completions[i].finish, host.completions[i].finish);
    EXPECT_EQ(device.completions[i].error, host.completions[i].error);
  }
}

// TinyDecoder, whose logits get zeros from a table at places that are computed of tokens: that of `token` is none.
Model DecoderOfPlaces(int64_t token) {
  Model model = TinyDecoder();
  Graph& graph = *model.graph;
  std::vector<float> places(kTinyVocabulary, 0.0f);
  places[token] = 9;
  Value* of_tokens =
      graph.AddInitializer("places", Tensor::Of<float>({kTinyVocabulary, 1}, places));
  Value* zeros = graph.AddInitializer("zeros", Tensor::Of<float>({2}, {0.0f, 0.0f}));
  Node* last = graph.FindValue("logits")->producer();
  GraphBuilder builder(graph, last, "places");
  Value* numbers = builder.Add("Gather", {of_tokens, graph.FindValue("input_ids")});
  Value* at = builder.Add("Cast", {numbers}, {{"to", int64_t{7}}});
  Value* taken = builder.Add("Gather", {zeros, at});
  last->SetInput(0, builder.Add("Add", {last->input(0), taken}));
  return model;
}

// Gather of rows that looks at indices itself, as kernels of devices do.
absl::Status LookAndGather(FakeContext& device, const KernelArgs& args) {
  const VeiledMemory::Open open(device.memory());
  const TensorArg &table = args.inputs[0], &indices = args.inputs[1];
  const int64_t bytes = table.size() / table.dim(0) * BitWidth(table.dtype) / 8;
  for (int64_t i = 0; i < indices.size(); ++i) {
    const int64_t index = indices.as<const int64_t>()[i];
    const bool is_one = index >= 0 && index < table.dim(0);
    std::byte* to = args.outputs[0].as<std::byte>() + i * bytes;
    std::fill_n(to, bytes, std::byte{0});
    if (is_one) std::copy_n(table.as<const std::byte>() + index * bytes, bytes, to);
    if (is_one || args.index_error->step != 0) continue;
    *args.index_error = {.step = args.step, .input = 1, .element = i, .value = index};
  }
  return absl::OkStatus();
}

Kernel LookingGather() {
  Kernel kernel{.name = "looks", .device = Device::kCuda, .priority = 2000, .checks_indices = true};
  kernel.supports = [](const KernelQuery& query) -> absl::Status {
    const bool is_int64 = query.node->input(1)->dtype() == DataType::kInt64;
    const auto axis = query.node->IntAttribute("axis", 0);
    if (is_int64 && axis.ok() && *axis == 0) return absl::OkStatus();
    return absl::UnimplementedError("rows by int64 alone");
  };
  kernel.run = [](KernelArgs& args) {
    auto& device = *static_cast<FakeContext*>(args.device->queue());
    return device.Do([&device, args] { return LookAndGather(device, args); });
  };
  return kernel;
}

TEST(DeviceEngine, AnIndexThatTheDeviceRefusesEndsItsRequestAlone) {
  constexpr int64_t kBad = 7;
  std::vector<Request> requests(4);
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto first = static_cast<int64_t>(i);
    requests[i].prompt = {8 + first, 12, 13 + first};
    requests[i].max_new_tokens = 10;
    requests[i].sampling.bias = {{kBad, -100}};
  }
  // One of the prompt's, and one that is drawn.
  requests[1].prompt[1] = kBad;
  requests[2].sampling.bias = {{kBad, 100}};
  const EngineOptions plain{.block_size = 4, .max_tokens_per_step = 24};
  const auto alone = Must(
      Must(Engine::Create(DecoderOfPlaces(kBad), plain))->Generate({requests[0], requests[3]}));
  OpRegistry registry = WithFakeKernels();
  Must(registry.AddKernel("", "Gather", LookingGather()));
  const ScopedOpRegistry scope(registry);
  EngineOptions options = plain;
  options.session.device = std::make_shared<FakeContext>();
  const auto engine = Must(Engine::Create(DecoderOfPlaces(kBad), options));
  const auto completions = Must(engine->Generate(requests));
  for (const int bad : {1, 2}) {
    EXPECT_EQ(completions[bad].finish, FinishReason::kFailed);
    EXPECT_THAT(std::string(completions[bad].error.message()), testing::HasSubstr("9"));
  }
  EXPECT_TRUE(completions[1].tokens.empty());
  EXPECT_THAT(completions[2].tokens, testing::ElementsAre(kBad));
  EXPECT_EQ(completions[0].tokens, alone[0].tokens);
  EXPECT_EQ(completions[3].tokens, alone[1].tokens);
  EXPECT_EQ(alone[0].tokens.size(), 10u);
  EXPECT_EQ(engine->cache().pool().num_held(), 0);
}

}  // namespace
}  // namespace pagefuse
