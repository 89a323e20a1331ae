// SPDX-License-Identifier: Apache-2.0
// What a device is told of a step, and the engine over a device that is told nothing else.
#include "pagefuse/runtime/step_record.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>

#include "fake_device.h"
#include "must.h"
#include "tiny_decoder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/runtime/engine.h"
#include "pagefuse/runtime/paged_model.h"

namespace pagefuse {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

absl::Status AddLongs(StepRecord& record, std::string_view name,
                      const std::vector<int64_t>& values) {
  return record.Add(name, {static_cast<int64_t>(values.size())}, std::span(values));
}

TEST(StepRecord, HasFieldAfterFieldAtLinesAndZerosBetweenThem) {
  StepRecord record;
  std::vector<int64_t> dirt(40, -1);
  Must(AddLongs(record, "dirt", dirt));
  record.Clear();
  Must(AddLongs(record, "ids", {7, 8, 9}));
  Must(record.Add("table", {2, 2}, std::span<const int32_t>(std::vector<int32_t>{1, 2, 3, -1})));
  Must(AddLongs(record, "none", {}));
  Must(AddLongs(record, "last", {5}));
  std::vector<std::pair<std::string, size_t>> places;
  for (const StepRecord::Field& field : record.fields()) {
    places.emplace_back(field.input, field.offset);
  }
  EXPECT_THAT(places,
              ElementsAre(Pair("ids", 0), Pair("table", 64), Pair("none", 128), Pair("last", 128)));
  std::vector<std::byte> want(136, std::byte{0});
  const int64_t ids[] = {7, 8, 9}, last[] = {5};
  const int32_t table[] = {1, 2, 3, -1};
  std::memcpy(want.data(), ids, sizeof(ids));
  std::memcpy(want.data() + 64, table, sizeof(table));
  std::memcpy(want.data() + 128, last, sizeof(last));
  EXPECT_TRUE(std::ranges::equal(record.bytes(), want));
}

TEST(StepRecord, TakesItsMemoryAgainUnlessSomebodyLooksAtIt) {
  StepRecord record;
  Must(AddLongs(record, "ids", {7, 8, 9}));
  const std::byte* memory = record.bytes().data();
  record.Clear();
  Must(AddLongs(record, "ids", {1}));
  EXPECT_EQ(record.bytes().data(), memory);
  std::map<std::string, Tensor> feeds;
  Must(record.AddFeeds(feeds));
  record.Clear();
  Must(AddLongs(record, "ids", {2}));
  EXPECT_THAT(feeds.at("ids").values<int64_t>(), ElementsAre(1));
}

TEST(StepRecord, RefusesValuesThatAreNotAsManyAsTheDimsSay) {
  StepRecord record;
  const std::vector<int64_t> values = {1, 2};
  EXPECT_EQ(record.Add("ids", {3}, std::span(values)).message(),
            "input \"ids\" of a step: expected 24 bytes for [3], got 16");
  EXPECT_TRUE(record.fields().empty());
}

// By input name, of a step of two sequences of 5 and 1 tokens in blocks of 4.
TEST(StepRecord, TellsAGraphWhatItTakes) {
  const auto model = Must(PagedModel::Create(TinyDecoder(), {.block_size = 4}));
  Must(model->Reserve({8, 8}, 8));
  PagedCache& cache = model->cache();
  const SequenceId first = cache.AddSequence(), second = cache.AddSequence();
  const StepMetadata step = Must(
      cache.Append({{.sequence = first, .num_tokens = 5}, {.sequence = second, .num_tokens = 1}}));
  StepRecord record;
  Must(model->layout().WriteRecord({1, 2, 3, 4, 5, 6}, step, record));
  std::map<std::string, Tensor> feeds;
  Must(record.AddFeeds(feeds));
  std::vector<std::string> names;
  for (const StepRecord::Field& field : record.fields()) names.push_back(field.input);
  EXPECT_THAT(names, ElementsAre("input_ids", "query_start_loc", "seq_lens", "logit_rows",
                                 "block_table.full", "slot_mapping.full"));
  EXPECT_THAT(feeds.at("input_ids").values<int64_t>(), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(feeds.at("query_start_loc").values<int32_t>(), ElementsAre(0, 5, 6));
  EXPECT_THAT(feeds.at("seq_lens").values<int32_t>(), ElementsAre(5, 1));
  EXPECT_THAT(feeds.at("logit_rows").values<int64_t>(), ElementsAre(4, 5));
  EXPECT_THAT(feeds.at("block_table.full").dims(), ElementsAre(2, 2));
  EXPECT_THAT(feeds.at("block_table.full").values<int32_t>(), ElementsAre(0, 1, 2, -1));
  EXPECT_THAT(feeds.at("slot_mapping.full").values<int64_t>(), ElementsAre(0, 1, 2, 3, 4, 8));
}

std::vector<Request> SomeRequests() {
  std::mt19937 random(7);
  std::vector<Request> requests(24);
  for (size_t i = 0; i < requests.size(); ++i) {
    Request& request = requests[i];
    for (size_t t = 0; t < 1 + 3 * (i % 8); ++t) {
      request.prompt.push_back(static_cast<int64_t>(random() % (i % 2 == 0 ? 3 : kTinyVocabulary)));
    }
    request.max_new_tokens = 6 + static_cast<int64_t>(i % 5);
    request.samples = i % 6 == 5 ? 3 : 1;
    request.keep_logits = i % 4 == 3;
    request.sampling.seed = i;
    if (i % 3 == 1) request.sampling = {.temperature = 0.9, .top_p = 0.8, .seed = i, .logprobs = 3};
    if (i % 3 == 2) request.sampling = {.repetition_penalty = 1.3, .bias = {{2, 0.5}}, .seed = i};
  }
  return requests;
}

struct EngineRun {
  std::vector<Completion> completions;
  EngineStats stats;
};

EngineRun RunOn(StepDeviceMaker device, int64_t window, int64_t cache_tokens) {
  EngineOptions options{.block_size = 4, .max_tokens_per_step = 24, .cache_tokens = cache_tokens};
  options.device = std::move(device);
  const auto engine = Must(Engine::Create(TinyDecoder(window), options));
  EngineRun run{Must(engine->Generate(SomeRequests())), {}};
  run.stats = engine->stats();
  return run;
}

void ExpectEqual(const EngineRun& got, const EngineRun& want) {
  ASSERT_EQ(got.completions.size(), want.completions.size());
  for (size_t i = 0; i < want.completions.size(); ++i) {
    const Completion &a = got.completions[i], &b = want.completions[i];
    Must(a.error);
    EXPECT_EQ(a.tokens, b.tokens) << i;
    EXPECT_EQ(a.logits, b.logits) << i;
    ASSERT_EQ(a.logprobs.size(), b.logprobs.size());
    for (size_t t = 0; t < b.logprobs.size(); ++t) {
      EXPECT_EQ(a.logprobs[t].logprob, b.logprobs[t].logprob) << i;
      EXPECT_EQ(a.logprobs[t].top, b.logprobs[t].top) << i;
    }
  }
}

int64_t RowsKept(const EngineRun& run) {
  int64_t rows = 0;
  for (const Completion& completion : run.completions) {
    rows += static_cast<int64_t>(completion.logits.size());
  }
  return rows;
}

int64_t NewTokens(const EngineRun& run) {
  int64_t tokens = 0;
  for (const Completion& completion : run.completions) {
    tokens += static_cast<int64_t>(completion.tokens.size());
  }
  return tokens;
}

TEST(StepRecord, IsAllThatADeviceNeedsForTheSameBits) {
  for (const int64_t window : {0, 5}) {
    for (const int64_t cache_tokens : {40, 4096}) {  // requests take turns, or not
      const EngineRun host = RunOn(nullptr, window, cache_tokens);
      const auto counts = std::make_shared<FakeDevice::Counts>();
      const EngineRun device = RunOn(FakeDevice::Maker(counts), window, cache_tokens);
      ExpectEqual(device, host);
      EXPECT_EQ(counts->steps, device.stats.steps);
      EXPECT_GT(counts->record_bytes, 0);
      EXPECT_EQ(counts->rows, NewTokens(device) + RowsKept(device));
    }
  }
}

TEST(StepRecord, ADeviceThatDrawsCopiesOnlyRowsThatAreAskedFor) {
  const EngineRun host = RunOn(nullptr, 0, 4096);
  const auto counts = std::make_shared<FakeDevice::Counts>();
  const EngineRun device = RunOn(FakeDevice::Maker(counts, /*draws=*/true), 0, 4096);
  ExpectEqual(device, host);
  EXPECT_EQ(counts->draws, NewTokens(device));
  EXPECT_EQ(counts->rows, RowsKept(device));
}

TEST(StepDevice, ReadsAndWritesBlocksOfPages) {
  const auto model = Must(PagedModel::Create(TinyDecoder(), {.block_size = 4}));
  Must(model->Reserve({16}, 16));
  StepDevice& device = model->device();
  const CacheGroup& group = model->layout().groups()[0];
  ASSERT_EQ(group.caches.size(), 2u);
  std::vector<std::byte> keys(4 * 8 * 4), values(keys.size()), got(keys.size());
  std::memset(keys.data(), 1, keys.size());
  std::memset(values.data(), 2, values.size());
  Must(device.WritePage(group.caches[0], 1, keys));
  Must(device.WritePage(group.caches[1], 1, values));
  const PagedCache::Copy copy{.group = 0, .from = 1, .to = 3};
  Must(device.CopyPages({&copy, 1}));
  for (const int64_t page : {1, 3}) {
    Must(device.ReadPage(group.caches[0], page, got));
    EXPECT_EQ(got, keys) << page;
    Must(device.ReadPage(group.caches[1], page, got));
    EXPECT_EQ(got, values) << page;
  }
  Must(device.ReadPage(group.caches[1], 2, got));
  EXPECT_EQ(got, std::vector<std::byte>(got.size()));
  EXPECT_EQ(device.ReadPage("other", 0, got).message(),
            "cache \"other\": the graph has none of that name");
  EXPECT_EQ(device.ReadPage(group.caches[0], 4, got).message(),
            StrCat("cache \"", group.caches[0], "\": expected a page of 0 to 3, got 4"));
  EXPECT_EQ(device.WritePage(group.caches[0], 0, std::span(got).first(3)).message(),
            StrCat("cache \"", group.caches[0], "\": expected a block of 128 bytes, got 3"));
}

}  // namespace
}  // namespace pagefuse
