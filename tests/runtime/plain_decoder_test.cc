// SPDX-License-Identifier: Apache-2.0
// Decoders that cannot be paged run as they were exported.
#include "pagefuse/runtime/plain_decoder.h"

#include <algorithm>
#include <map>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "must.h"
#include "tiny_decoder.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/runtime/decoder.h"
#include "pagefuse/runtime/paged_model.h"
#include "pagefuse/runtime/runnable.h"

namespace pagefuse {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kWeights = R"(
<float[5, 3] table = {1, 0, -1, 0, 2, 1, -1, 1, 0, 3, -2, 1, 0, 0, 2},
 float[3, 5] words = {1, -2, 0, 1, 1, 0, 1, 3, -1, 2, 1, 1, -1, 0, -2}, int64[1] one = {1}>)";

// The mean of all tokens so far, from the first one again at every step.
Model WithoutPast() {
  return *ParseModel(std::string(R"(<ir_version: 10, opset_import: ["" : 18]>
g (int64[B, S] input_ids) => (float[B, 1, 5] logits))") +
                     kWeights + R"({
  rows = Gather (table, input_ids)
  mean = ReduceMean <keepdims = 1> (rows, one)
  logits = MatMul (mean, words)
})");
}

// The same over what the steps before left.
std::string WithPastText(const std::string& past, const std::string& present,
                         const std::string& dims = "B, P, 3") {
  return StrCat(R"(<ir_version: 10, opset_import: ["" : 18]>
g (int32[B, S] input_ids, float[)",
                dims, "] \"", past,
                R"(", float[B, T] attention_mask) => (float[B, 1, 5] logits, float[B, T, 3] ")",
                present, "\")", kWeights, R"({
  rows = Gather (table, input_ids)
  ")",
                present, R"(" = Concat <axis = 1> (")", past, R"(", rows)
  kept = Unsqueeze (attention_mask, last)
  masked = Mul (")",
                present, R"(", kept)
  mean = ReduceMean <keepdims = 1> (masked, one)
  logits = MatMul (mean, words)
})");
}

Model WithPast(const std::string& past = "past_key_values.0.key",
               const std::string& present = "present.0.key", const std::string& dims = "B, P, 3") {
  std::string text = WithPastText(past, present, dims);
  text.replace(text.find("int64[1] one = {1}"), 18, "int64[1] one = {1}, int64[1] last = {-1}");
  return Must(ParseModel(text));
}

// The tokens by arithmetic: no runtime is asked.
std::vector<int64_t> Expected(std::vector<int64_t> tokens, int64_t count) {
  constexpr float kTable[5][3] = {{1, 0, -1}, {0, 2, 1}, {-1, 1, 0}, {3, -2, 1}, {0, 0, 2}};
  constexpr float kWords[3][5] = {{1, -2, 0, 1, 1}, {0, 1, 3, -1, 2}, {1, 1, -1, 0, -2}};
  std::vector<int64_t> found;
  while (static_cast<int64_t>(found.size()) < count) {
    float sum[3] = {};
    for (int64_t token : tokens) {
      for (int i = 0; i < 3; ++i) sum[i] += kTable[token][i];
    }
    int64_t best = 0;
    float most = -1e9f;
    for (int64_t word = 0; word < 5; ++word) {
      float score = 0;
      for (int i = 0; i < 3; ++i) score += sum[i] * kWords[i][word];
      if (score > most) std::tie(most, best) = std::pair(score, word);
    }
    found.push_back(best);
    tokens.push_back(best);
  }
  return found;
}

std::vector<int64_t> Generated(Model model, const std::vector<int64_t>& prompt, int64_t count) {
  auto decoder = Must(PlainDecoder::Create(std::move(model), {}));
  const auto completions = Must(decoder->Generate({{.prompt = prompt, .max_new_tokens = count}}));
  return completions[0].tokens;
}

absl::Status Refusal(Model model) { return PlainDecoder::Create(std::move(model), {}).status(); }

TEST(PlainDecoderTest, StartsFromTheFirstTokenWhereThereIsNoPast) {
  EXPECT_EQ(Generated(WithoutPast(), {3, 1, 4}, 9), Expected({3, 1, 4}, 9));
}

TEST(PlainDecoderTest, GoesOnFromItsPast) {
  EXPECT_EQ(Generated(WithPast(), {3, 1, 4}, 9), Expected({3, 1, 4}, 9));
  EXPECT_EQ(Generated(WithPast("past_0", "present_0"), {0}, 5), Expected({0}, 5));
}

TEST(PlainDecoderTest, StartsEveryRequestAnew) {
  auto decoder = Must(PlainDecoder::Create(WithPast(), {}));
  const auto completions = Must(decoder->Generate(
      {{.prompt = {3, 1, 4}, .max_new_tokens = 4}, {.prompt = {2}, .max_new_tokens = 6}}));
  EXPECT_EQ(completions[0].tokens, Expected({3, 1, 4}, 4));
  EXPECT_EQ(completions[1].tokens, Expected({2}, 6));
  EXPECT_EQ(decoder->stats().prefill_tokens, 4);
  EXPECT_EQ(decoder->stats().decode_tokens, 8);
}

TEST(PlainDecoderTest, StopsAtAStopToken) {
  const std::vector<int64_t> all = Expected({3, 1, 4}, 9);
  auto decoder = PlainDecoder::Create(WithoutPast(), {});
  const auto completions = Must(
      (*decoder)->Generate({{.prompt = {3, 1, 4}, .max_new_tokens = 9, .stop_tokens = {all[0]}}}));
  EXPECT_EQ(completions[0].tokens, std::vector<int64_t>{all[0]});
}

TEST(PlainDecoderTest, FindsThePresentByWhatItIsMadeOf) {
  EXPECT_EQ(Generated(WithPast("past_key_values.0.key", "other"), {3, 1, 4}, 9),
            Expected({3, 1, 4}, 9));
}

TEST(PlainDecoderTest, NamesAPastWithoutAPresent) {
  std::string text = WithPastText("past_key_values.0.key", "other");
  text.replace(text.find("int64[1] one = {1}"), 18, "int64[1] one = {1}, int64[1] last = {-1}");
  text.replace(text.find(", float[B, T, 3] \"other\""), 24, "");
  EXPECT_THAT(std::string(Refusal(Must(ParseModel(text))).message()),
              HasSubstr("\"past_key_values.0.key\" is a past, and no output is its present"));
}

// Rows are written into a past of eight, at the places that an input gives; the others are hidden.
constexpr const char* kWrittenByPlace = R"(<ir_version: 10, opset_import: ["" : 18]>
g (int64[B, S] input_ids, int64[S] cache_position, float[B, 8, 3] past_0)
  => (float[B, 1, 5] logits, float[B, 8, 3] present_0)
<float[5, 3] table = {1, 0, -1, 0, 2, 1, -1, 1, 0, 3, -2, 1, 0, 0, 2},
 float[3, 5] words = {1, -2, 0, 1, 1, 0, 1, 3, -1, 2, 1, 1, -1, 0, -2}, int64[1] one = {1},
 int64[8] all = {0, 1, 2, 3, 4, 5, 6, 7}, int64[2] ends = {0, 2}, float none = {0}> {
  rows = Gather (table, input_ids)
  columns = Unsqueeze (cache_position, ends)
  size = Shape (rows)
  places = Expand (columns, size)
  present_0 = ScatterElements <axis = 1> (past_0, places, rows)
  newest = ReduceMax (cache_position)
  seen = LessOrEqual (all, newest)
  by_row = Unsqueeze (seen, ends)
  kept = Where (by_row, present_0, none)
  mean = ReduceMean <keepdims = 1> (kept, one)
  logits = MatMul (mean, words)
})";

TEST(PlainDecoderTest, WritesRowsWhereAnInputSays) {
  EXPECT_EQ(Generated(Must(ParseModel(kWrittenByPlace)), {3, 1, 4}, 5), Expected({3, 1, 4}, 5));
}

TEST(PlainDecoderTest, NamesTheNodeThatWritesBehindThePast) {
  auto decoder = Must(PlainDecoder::Create(Must(ParseModel(kWrittenByPlace)), {}));
  const auto completions = decoder->Generate({{.prompt = {3, 1, 4}, .max_new_tokens = 7}});
  EXPECT_THAT(std::string(completions.status().message()), HasSubstr("8 is out of range"));
}

// Positions that the graph counts with, which nothing but their name tells.
TEST(PlainDecoderTest, TakesPositionsByTheirName) {
  std::string text(R"(<ir_version: 10, opset_import: ["" : 18]>
g (int64[B, S] input_ids, int64[B, S] position_ids) => (float[B, 1, 5] logits))");
  text += std::string(kWeights) + R"({
  rows = Gather (table, input_ids)
  places = Cast <to = 1> (position_ids)
  zeros = Sub (places, places)
  columns = Unsqueeze (zeros, last)
  placed = Add (rows, columns)
  mean = ReduceMean <keepdims = 1> (placed, one)
  logits = MatMul (mean, words)
})";
  text.replace(text.find("int64[1] one = {1}"), 18, "int64[1] one = {1}, int64[1] last = {-1}");
  EXPECT_EQ(Generated(Must(ParseModel(text)), {3, 1, 4}, 5), Expected({3, 1, 4}, 5));
}

TEST(PlainDecoderTest, NamesAStateThatDoesNotStartEmpty) {
  EXPECT_THAT(
      std::string(Refusal(WithPast("past_key_values.0.key", "present.0.key", "B, 4, 3")).message()),
      HasSubstr("is a state of [B, 4, 3], which another graph starts"));
}

TEST(PlainDecoderTest, NamesATokenOutsideTheVocabulary) {
  auto decoder = PlainDecoder::Create(WithoutPast(), {});
  const auto completions = Must((*decoder)->Generate({{.prompt = {5}}, {.prompt = {4}}}));
  EXPECT_EQ(completions[0].finish, FinishReason::kRefused);
  EXPECT_EQ(StdView(completions[0].error.message()),
            "prompt: token 5 is outside the vocabulary: expected 0 to 4");
  EXPECT_EQ(completions[1].tokens.size(), 32u);
}

TEST(DecoderTest, RunsWhatCannotBePagedAsExported) {
  auto decoder = Must(Decoder::Create([] { return WithPast(); }, {}));
  EXPECT_EQ(decoder->engine(), nullptr);
  EXPECT_THAT(decoder->why_not_paged(), HasSubstr("insert-paged-cache"));
  const auto completions = Must(decoder->Generate({{.prompt = {3, 1, 4}, .max_new_tokens = 4}}));
  EXPECT_EQ(completions[0].tokens, Expected({3, 1, 4}, 4));
}

TEST(DecoderTest, PagesWhatCanBe) {
  auto decoder = Must(Decoder::Create([] { return TinyDecoder(); }, {}));
  EXPECT_NE(decoder->engine(), nullptr);
  EXPECT_EQ(decoder->vocabulary(), kTinyVocabulary);
}

// Rotates by other angles where the greatest position of a text is 6 or more.
std::string ChosenByLength() {
  std::string table;
  for (int i = 0; i < 64; ++i) StrAppend(&table, i > 0 ? ", " : "", (i * i * 7 + i * 3) % 11 - 5);
  return StrCat(R"(
<ir_version: 10, opset_import: ["" : 24]>
g (int64[B, S] input_ids, int64[B, S] position_ids) => (float[B, S, 8] logits)
<int64[4] split = {0, 0, 2, 4}, int64[3] join = {0, 0, 8}, int64[1] two = {2}, int64 last = {5},
 float[8] short = {1, 2, 3, 1, 2, 3, 1, 2}, float[8] long = {3, 1, 1, 2, 0.5, 1, 2, 3},
 float[8, 8] table = {)",
                table, R"(}>
{
  x0 = Gather (table, input_ids)
  greatest = ReduceMax <keepdims = 0> (position_ids)
  beyond = Greater (greatest, last)
  freq = Where (beyond, long, short)
  f = Cast <to = 1> (position_ids)
  p = Unsqueeze (f, two)
  angles = Mul (p, freq)
  cos = Cos (angles)
  turned = Mul (x0, cos)
  heads = Reshape (turned, split)
  q = Transpose <perm = [0, 2, 1, 3]> (heads)
  y = Attention <is_causal = 1, scale = 0.5> (q, q, q)
  back = Transpose <perm = [0, 2, 1, 3]> (y)
  logits = Reshape (back, join)
}
)");
}

TEST(DecoderTest, RunsAsExportedWhatIsLongerThanItPages) {
  const auto load = [] { return Must(ParseModel(ChosenByLength())); };
  auto decoder = Must(Decoder::Create(load, {}, {.check_paging = CheckPaging::kAlways}));
  ASSERT_NE(decoder->engine(), nullptr);
  EXPECT_EQ(decoder->engine()->max_tokens(), 6);
  EXPECT_GT(decoder->verdict()->probes, 0);
  // The last new token is not run: six tokens are, and seven.
  const std::vector<Request> requests = {{.prompt = {1, 2, 3, 4, 5, 6, 7}, .max_new_tokens = 3},
                                         {.prompt = {3, 1, 4}, .max_new_tokens = 4, .samples = 2},
                                         {.prompt = {3, 1, 4, 2}, .max_new_tokens = 4}};
  EXPECT_EQ(decoder->WhyAsExported(requests[1]), "");
  EXPECT_THAT(decoder->WhyAsExported(requests[2]), HasSubstr("runs 6 tokens"));
  std::vector<size_t> told;
  const auto completions = Must(decoder->Generate(requests, [&](const NewToken& token) {
    told.push_back(token.completion);
    return true;
  }));
  auto exported = Must(PlainDecoder::Create(load(), {}));
  const auto expected = Must(exported->Generate(requests));
  ASSERT_EQ(completions.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(completions[i].as_exported, i == 0 || i == 3) << i;
    EXPECT_EQ(completions[i].tokens, expected[i].tokens) << i;
    EXPECT_EQ(std::ranges::count(told, i), static_cast<int64_t>(expected[i].tokens.size())) << i;
  }
  EXPECT_EQ(Must(decoder->Generate({requests[0]}))[0].tokens, expected[0].tokens);
  EXPECT_GT(decoder->stats().steps, 0);
}

TEST(DecoderTest, RefusesWhatIsLongerWherePagesAreAskedFor) {
  const auto load = [] { return Must(ParseModel(ChosenByLength())); };
  auto decoder = Must(Decoder::Create(load, {.block_size = 8}));
  const Request most = {.prompt = {3, 1, 4}, .max_new_tokens = 4};
  const Request more = {.prompt = {3, 1, 4}, .max_new_tokens = 5};
  const auto completions = Must(decoder->Generate({most, more}));
  EXPECT_EQ(completions[0].tokens, Must(decoder->Generate({most}))[0].tokens);
  const absl::Status status = FirstError(completions);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("7 tokens: expected 6 at most"));
}

TEST(PagedModelTest, RunsNoStepBehindWhatItPages) {
  auto model = Must(PagedModel::Create(Must(ParseModel(ChosenByLength())), {}));
  ASSERT_TRUE(model->Reserve({8}, 8).ok());
  const SequenceId sequence = model->cache().AddSequence();
  EXPECT_TRUE(model->Step({{sequence, {1, 2, 3, 4, 5, 6}}}).ok());
  EXPECT_EQ(model->Step({{sequence, {7}}}).status().code(), absl::StatusCode::kInvalidArgument);
}

// Counts positions over the tokens that are not 0, as a padded text has them.
std::string CountedWithoutZeros() {
  std::string ids, places;
  for (int i = 0; i < 64; ++i) {
    StrAppend(&ids, i > 0 ? ", " : "", (i * i * 7 + i * 3) % 11 - 5);
    StrAppend(&places, i > 0 ? ", " : "", (i * i * 5 + i) % 7 - 3);
  }
  return StrCat(R"(
<ir_version: 10, opset_import: ["" : 24]>
g (int64[B, S] input_ids) => (float[B, S, 8] logits)
<int64[4] split = {0, 0, 2, 4}, int64[3] join = {0, 0, 8}, int64 pad = {0}, int64 axis = {1},
 float[8, 8] places = {)",
                places, "}, float[8, 8] table = {", ids, R"(}>
{
  is_pad = Equal (input_ids, pad)
  is_token = Not (is_pad)
  ones = Cast <to = 7> (is_token)
  counted = CumSum (ones, axis)
  place = Mul (counted, ones)
  word = Gather (table, input_ids)
  at = Gather (places, place)
  x = Add (word, at)
  heads = Reshape (x, split)
  q = Transpose <perm = [0, 2, 1, 3]> (heads)
  y = Attention <is_causal = 1, scale = 0.5> (q, q, q)
  back = Transpose <perm = [0, 2, 1, 3]> (y)
  logits = Reshape (back, join)
}
)");
}

TEST(DecoderTest, GoesOnAsExportedBehindATokenThatItDoesNotRun) {
  const auto load = [] { return Must(ParseModel(CountedWithoutZeros())); };
  auto decoder = Must(Decoder::Create(load, {}, {.check_paging = CheckPaging::kAlways}));
  ASSERT_NE(decoder->engine(), nullptr);
  EXPECT_FALSE(decoder->engine()->Runs(0));
  EXPECT_GT(decoder->verdict()->probes, 0);
  std::vector<Request> requests = {{.prompt = {3, 0, 4}, .max_new_tokens = 3, .keep_logits = true}};
  for (int64_t token = 1; token < 8; ++token) {
    Request request{.prompt = {token, 2}, .max_new_tokens = 5, .keep_logits = true};
    request.sampling = {.temperature = 8, .seed = token, .logprobs = 1};
    request.samples = 1 + token % 3;
    requests.push_back(request);
  }
  EXPECT_THAT(decoder->WhyAsExported(requests[0]), HasSubstr("does not run token 0"));
  EXPECT_EQ(decoder->WhyAsExported(requests[1]), "");
  std::map<size_t, std::vector<int64_t>> told;
  const auto completions = Must(decoder->Generate(requests, [&](const NewToken& token) {
    told[token.completion].push_back(token.token);
    return true;
  }));
  auto exported = Must(PlainDecoder::Create(load(), {}));
  const auto expected = Must(exported->Generate(requests));
  ASSERT_EQ(completions.size(), expected.size());
  int with_zero = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const std::vector<int64_t>& tokens = expected[i].tokens;
    with_zero += static_cast<int>(std::count(tokens.begin(), tokens.end() - 1, 0));
    EXPECT_TRUE(completions[i].error.ok()) << completions[i].error;
    EXPECT_EQ(completions[i].tokens, tokens) << i;
    EXPECT_EQ(told[i], tokens) << i;
    EXPECT_EQ(completions[i].logits.size(), tokens.size()) << i;
    EXPECT_EQ(completions[i].logprobs.size(), expected[i].logprobs.size()) << i;
  }
  EXPECT_GT(with_zero, 2);
  size_t place = 0;
  for (Request request : requests) {
    const int64_t samples = std::exchange(request.samples, 1);
    EXPECT_EQ(Must(decoder->Generate({request}))[0].tokens, expected[place].tokens);
    place += samples;
  }
}

TEST(DecoderTest, EndsAtATokenThatItDoesNotRunWherePagesAreAskedFor) {
  const auto load = [] { return Must(ParseModel(CountedWithoutZeros())); };
  auto decoder = Must(Decoder::Create(load, {.block_size = 8}));
  const Request with = {.prompt = {3, 0, 4}};
  const Request forced = {.prompt = {3, 4}, .max_new_tokens = 3, .forced = {2, 0}};
  for (const Request& request : {with, forced}) {
    const absl::Status status = FirstError(Must(decoder->Generate({request})));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("request 0: token 0: expected another"));
  }
  Request comes = {.prompt = {3, 4}, .max_new_tokens = 3};
  comes.sampling.bias = {{0, 100}};
  const auto completions = Must(decoder->Generate({comes}));
  EXPECT_EQ(completions[0].tokens, std::vector<int64_t>{0});
  EXPECT_EQ(completions[0].finish, FinishReason::kFailed);
  EXPECT_EQ(completions[0].error.code(), absl::StatusCode::kFailedPrecondition);
  comes.max_new_tokens = 1;  // which is not run
  EXPECT_TRUE(Must(decoder->Generate({comes}))[0].error.ok());
}

TEST(DecoderTest, IsRefusedWherePagesAreAskedFor) {
  const auto load = [] { return WithPast(); };
  for (const auto& status : {Decoder::Create(load, {}, {.require_paged = true}).status(),
                             Decoder::Create(load, {.kv_cache = "fp8_per_token_head"}).status(),
                             Decoder::Create(load, {.block_size = 8}).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("no paged cache"));
  }
  for (const char* option : kCacheOptions) {
    EngineOptions options;
    options.session.pipeline.options[option] = "1";
    EXPECT_FALSE(Decoder::Create(load, options).ok()) << option;
  }
}

// What is wrong with an option is said, whether or not the graph would run without pages.
TEST(DecoderTest, RefusesOtherOptionsThatAreWrong) {
  EngineOptions options;
  options.session.pipeline.options["weights"] = "int5";
  const absl::Status status = Decoder::Create([] { return WithPast(); }, options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("int5"), Not(HasSubstr("as it was exported"))));
}

}  // namespace
}  // namespace pagefuse
