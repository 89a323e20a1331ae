// SPDX-License-Identifier: Apache-2.0
// Steps of an engine on the device: sequences come, fork, end and make way for others, and each request
// gets what it gets on the host.
#include <random>
#include <string>
#include <vector>

#include "graph_run.h"
#include "report.h"
#include "settings.h"
#include "tests/models/model_data.h"
#include <gtest/gtest.h>

#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

// float32, in which batches sum in other orders.
constexpr double kLeastGap = 1e-3;

// Of lengths that end inside blocks and windows; some begin alike, and some are asked for twice.
std::vector<Request> RandomRequests(const std::vector<int64_t>& tokens, int count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    Request request;
    const size_t alike = i % 3 == 0 ? 20 : 0;
    const size_t length = 1 + alike + random() % 60;
    for (size_t t = 0; t < length; ++t) {
      request.prompt.push_back(t < alike ? tokens[t % tokens.size()]
                                         : tokens[random() % tokens.size()]);
    }
    request.max_new_tokens = 1 + static_cast<int64_t>(random() % 24);
    request.samples = i % 5 == 4 ? 2 : 1;
    request.keep_logits = true;
    requests.push_back(std::move(request));
  }
  return requests;
}

struct Batch {
  const char* name;
  const char* model;
  int requests;
  int64_t tokens_per_step, cache_tokens;
};
void PrintTo(const Batch& batch, std::ostream* os) { *os << batch.name; }

class DeviceEngine : public ::testing::TestWithParam<Batch> {};
INSTANTIATE_TEST_SUITE_P(Batches, DeviceEngine,
                         ::testing::Values(Batch{"Many", "gemma3_A18", 60, 512, 16384},
                                           Batch{"InSmallSteps", "gemma3_B18", 24, 17, 8192},
                                           // Requests give way to others, and are computed again.
                                           Batch{"InASmallCache", "gemma3_A18", 24, 64, 400},
                                           Batch{"OfWindows", "gemma3_D_windowed", 24, 96, 4096}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(DeviceEngine, GivesEachRequestWhatTheHostGives) {
  if (TestSettings().sanitize) GTEST_SKIP() << "single kernels are enough";
  ASSERT_TRUE(DeviceIsWell());
  const Batch& batch = GetParam();
  const int failures = FailuresSoFar();
  const Model model = LoadBundled(batch.model);
  const auto requests = RandomRequests(LoadGreedy(batch.model).prompt, batch.requests, 7);
  const auto run = [&](std::shared_ptr<DeviceContext> device) {
    EngineOptions options = EngineOn(std::move(device), "none");
    options.max_tokens_per_step = batch.tokens_per_step;
    options.cache_tokens = batch.cache_tokens;
    return Generated(model, options, requests);
  };
  const auto want = run(nullptr), got = run(TestSettings().device);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    SCOPED_TRACE(StrCat("completion ", i));
    ExpectSameTokens(got[i], want[i], kLeastGap);
  }
  Report::Get().AddGraph(batch.model, "none", FailuresSoFar() == failures,
                         StrCat(batch.requests, " requests in steps of ", batch.tokens_per_step,
                                " tokens, a cache of ", batch.cache_tokens));
}

}  // namespace
}  // namespace pagefuse
