// SPDX-License-Identifier: Apache-2.0
// Warm-up: what it must not change, and what it must have done.
#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "must.h"
#include "tiny_decoder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/runtime/engine.h"
#include "pagefuse/runtime/session.h"

namespace pagefuse {
namespace {

using ::testing::HasSubstr;

using Feeds = std::map<std::string, Tensor>;

// Puts rows into a cache, seen through a reshape, and doubles what is there.
constexpr char kCacheGraph[] = R"(<ir_version: 10, opset_import: ["" : 20, "pagefuse" : 1]>
g (float[T, 1, 8] key, float[T, 1, 8] value, float[S, 1, 8] keys, float[4, 2, 1, 8] values,
   int64[T] slots) => (float[4, 2, 1, 8] new_keys, float[4, 2, 1, 8] new_values, float[T, 8] y)
<int64[4] by_block = {4, 2, 1, 8}, int64[2] rows = {-1, 8}, float two = {2}>
{
  paged = Reshape (keys, by_block)
  new_keys, new_values = pagefuse.PagedCacheInsert (key, value, paged, values, slots)
  flat = Reshape (key, rows)
  y = Mul (flat, two)
}
)";

std::unique_ptr<Session> MakeSession(const std::string& text) {
  Model model = Must(ParseModel(text));
  SessionOptions options;
  options.optimise = false;
  return Must(Session::Create(std::move(model), options));
}

Tensor Filled(std::vector<int64_t> dims, float first) {
  Tensor tensor = *Tensor::Allocate(DataType::kFloat, std::move(dims));
  for (float& x : tensor.mutable_values<float>()) x = first++;
  return tensor;
}

Feeds CacheFeeds() {
  return {{"key", Filled({3, 1, 8}, 100)},
          {"value", Filled({3, 1, 8}, 200)},
          {"keys", Filled({8, 1, 8}, 300)},
          {"values", Filled({4, 2, 1, 8}, 400)},
          {"slots", Tensor::Of<int64_t>({3}, {5, -1, 2})}};
}

void ExpectEqual(const std::vector<Tensor>& got, const std::vector<Tensor>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(got[i].IdenticalTo(want[i])) << "output " << i;
  }
}

TEST(SessionWarmUp, LeavesCachesAndFeedsAsTheyWere) {
  const std::unique_ptr<Session> session = MakeSession(kCacheGraph);
  const Feeds feeds = CacheFeeds();
  const Feeds untouched = CacheFeeds();
  ASSERT_TRUE(session->WarmUp(feeds).ok());
  for (const auto& [name, tensor] : feeds) {
    EXPECT_TRUE(tensor.IdenticalTo(untouched.at(name))) << name;
  }
}

TEST(SessionWarmUp, LeavesBoundMemoryAsItWas) {
  const std::unique_ptr<Session> session = MakeSession(kCacheGraph);
  Feeds feeds = CacheFeeds();
  const Tensor keys = feeds.at("keys");
  const Tensor y = Filled({3, 8}, -7);
  feeds.erase("keys");
  ASSERT_TRUE(session->Bind("keys", keys).ok());
  ASSERT_TRUE(session->Bind("y", y).ok());
  ASSERT_TRUE(session->WarmUp(feeds).ok());
  EXPECT_TRUE(keys.IdenticalTo(Filled({8, 1, 8}, 300)));
  EXPECT_TRUE(y.IdenticalTo(Filled({3, 8}, -7)));
  ASSERT_TRUE(session->Run(feeds).ok());
  EXPECT_FALSE(keys.IdenticalTo(Filled({8, 1, 8}, 300)));
  EXPECT_FALSE(y.IdenticalTo(Filled({3, 8}, -7)));
}

TEST(SessionWarmUp, DoesNotChangeResults) {
  const std::unique_ptr<Session> cold = MakeSession(kCacheGraph);
  const std::unique_ptr<Session> warm = MakeSession(kCacheGraph);
  ASSERT_TRUE(warm->WarmUp(CacheFeeds()).ok());
  for (int run = 0; run < 2; ++run) {
    const auto want = Must(cold->Run(CacheFeeds()));
    const auto got = Must(warm->Run(CacheFeeds()));
    ExpectEqual(got, want);
  }
}

TEST(SessionWarmUp, FixesTheSizeOfTheArena) {
  constexpr char kChain[] = R"(<ir_version: 10, opset_import: ["" : 20]>
g (float[N, 16] x) => (float[N, 16] y) {
  a = Softmax (x)
  b = Softmax <axis = 0> (a)
  y = Add (a, b)
}
)";
  const std::unique_ptr<Session> session = MakeSession(kChain);
  EXPECT_EQ(session->stats().arena_bytes, 0);
  ASSERT_TRUE(session->WarmUp({{"x", Filled({32, 16}, 0)}}).ok());
  const int64_t arena = session->stats().arena_bytes;
  EXPECT_GE(arena, 32 * 16 * 4);
  ASSERT_TRUE(session->Run({{"x", Filled({32, 16}, 0)}}).ok());
  EXPECT_EQ(session->stats().arena_bytes, arena);
}

TEST(SessionWarmUp, MakesUpZerosForInputsOfKnownShape) {
  const std::unique_ptr<Session> session = MakeSession(kCacheGraph);
  Feeds feeds = CacheFeeds();
  feeds.erase("value");
  feeds.erase("values");
  feeds.erase("slots");
  EXPECT_TRUE(session->WarmUp(feeds).ok());
}

TEST(SessionWarmUp, NamesAnInputWhoseShapeNothingTells) {
  const std::unique_ptr<Session> session = MakeSession(kCacheGraph);
  Feeds feeds = CacheFeeds();
  feeds.erase("keys");
  const absl::Status status = session->WarmUp(feeds);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(StdView(status.message())), HasSubstr("input \"keys\" was not fed"));
}

TEST(SessionWarmUp, ReportsWhatRunWouldReport) {
  const std::unique_ptr<Session> session = MakeSession(kCacheGraph);
  Feeds feeds = CacheFeeds();
  feeds["slots"] = Tensor::Of<int64_t>({3}, {5, 8, 2});
  EXPECT_THAT(std::string(StdView(session->WarmUp(feeds).message())),
              HasSubstr("expected slots below 8"));
}

TEST(EngineWarmUp, DoesNotChangeTokensLogitsOrStats) {
  std::vector<Request> requests(3);
  for (int64_t i = 0; i < 3; ++i) {
    for (int64_t t = 0; t < 3 + 4 * i; ++t) {
      requests[i].prompt.push_back((5 * t + i) % kTinyVocabulary);
    }
    requests[i].max_new_tokens = 6 + i;
    requests[i].keep_logits = true;
  }
  EngineOptions options;
  options.block_size = 4;
  options.max_tokens_per_step = 8;
  const auto cold = Must(Engine::Create(TinyDecoder(), options));
  const auto warm = Must(Engine::Create(TinyDecoder(), options));
  ASSERT_TRUE(warm->WarmUp(requests).ok());
  EXPECT_EQ(warm->cache().pool().num_held(), 0);
  EXPECT_EQ(warm->stats().steps, 0);
  const auto want = Must(cold->Generate(requests));
  const auto got = Must(warm->Generate(requests));
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(got[i].tokens, want[i].tokens);
    EXPECT_EQ(got[i].logits, want[i].logits);
  }
  EXPECT_EQ(warm->stats().steps, cold->stats().steps);
}

TEST(EngineWarmUp, PassesOverWhatGenerateRefuses) {
  const auto engine = Must(Engine::Create(TinyDecoder(), {}));
  Must(engine->WarmUp({Request{}}));
  Must(engine->WarmUp({Request{}, {.prompt = {1, 2}, .max_new_tokens = 2}, {.prompt = {-1}}}));
  EXPECT_EQ(engine->stats().steps, 0);
  EXPECT_EQ(engine->cache().pool().num_held(), 0);
}

}  // namespace
}  // namespace pagefuse
