// SPDX-License-Identifier: Apache-2.0
// Decoders of a layer or two, written by hand as exporters write larger ones (tests/data/decoders): with
// pages they give the tokens that they give as they are.
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "paths.h"
#include "tests/models/model_data.h"

#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/runtime/engine.h"
#include "pagefuse/runtime/plain_decoder.h"

namespace pagefuse {
namespace {

struct Decoder {
  const char* file;
  int attentions;
  int rotations = 1;
};

class SmallDecoder : public testing::TestWithParam<Decoder> {};

TEST_P(SmallDecoder, GivesItsTokensWithPages) {
  const std::string path = SourcePath(std::string("tests/data/decoders/") + GetParam().file);
  const std::vector<Request> requests = {{.prompt = {1, 2, 3, 4, 5}, .max_new_tokens = 12},
                                         {.prompt = {7}, .max_new_tokens = 12},
                                         {.prompt = {15, 0, 3}, .max_new_tokens = 12}};
  const auto engine = Engine::Load(path, {});
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_EQ(CountFused((*engine)->session().model(), "PagedAttention"), GetParam().attentions);
  EXPECT_EQ(CountFused((*engine)->session().model(), "RopeCacheInsert"), GetParam().rotations);
  const auto paged = (*engine)->Generate(requests);
  ASSERT_TRUE(paged.ok()) << paged.status();
  auto model = LoadModel(path);
  ASSERT_TRUE(model.ok()) << model.status();
  EngineOptions as_it_is;
  as_it_is.session.optimise = false;
  const auto plain = PlainDecoder::Create(*std::move(model), as_it_is);
  ASSERT_TRUE(plain.ok()) << plain.status();
  const auto expected = (*plain)->Generate(requests);
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ((*paged)[i].tokens, (*expected)[i].tokens) << i;
  }
}

// Rotation and attention of com.microsoft under a bias that is a mask, as the builder of ONNX Runtime
// GenAI writes models with as many key heads as query heads; sinks, as gpt-oss has them; two layers
// with one cache, as Gemma 3n has them; linear biases, as BLOOM, Falcon and MPT have them, and in the mask of
// Attention.
INSTANTIATE_TEST_SUITE_P(
    Decoders, SmallDecoder,
    testing::Values(Decoder{"multi_head_attention.onnxtxt", 1}, Decoder{"sinks.onnxtxt", 1},
                    Decoder{"shared_keys_and_values.onnxtxt", 2}, Decoder{"bloom.onnxtxt", 1, 0},
                    Decoder{"falcon.onnxtxt", 1, 0}, Decoder{"mpt.onnxtxt", 1, 0},
                    Decoder{"alibi_in_the_mask.onnxtxt", 1, 0}));

// A decoder with another line in place of one, and why it is not paged then.
struct Changed {
  const char* file;
  const char* line;
  const char* instead;
  const char* reason;
};
void PrintTo(const Changed& changed, std::ostream* os) { *os << changed.instead; }

class ChangedBias : public testing::TestWithParam<Changed> {};

TEST_P(ChangedBias, IsNotPaged) {
  const std::string path = SourcePath(std::string("tests/data/decoders/") + GetParam().file);
  std::ifstream file(path);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::string line = GetParam().line;
  const size_t at = text.find(line);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, line.size(), GetParam().instead);
  auto model = ParseModel(text);
  ASSERT_TRUE(model.ok()) << model.status();
  const auto engine = Engine::Create(*std::move(model), {});
  ASSERT_FALSE(engine.ok());
  EXPECT_THAT(std::string(engine.status().message()), testing::HasSubstr(GetParam().reason));
}

// Squares of places, places counted by other ones, a table that bends, a distance to another key, a
// slope of each query, and a sink beside them.
INSTANTIATE_TEST_SUITE_P(
    Biases, ChangedBias,
    testing::Values(
        Changed{"bloom.onnxtxt", "biases = Mul (slopes, places_float)",
                "squares = Mul (places_float, places_float)  biases = Mul (slopes, squares)",
                "(Attention): mask: "},
        Changed{"bloom.onnxtxt", "counted = CumSum (attention_mask, axis)",
                "twice = Add (attention_mask, attention_mask)  counted = CumSum (twice, axis)",
                "(Attention): mask: "},
        Changed{"mpt.onnxtxt", "-3.9375,", "-3.9,", "(Attention): mask: "},
        Changed{"sinks.onnxtxt", "masked = Add (scaled, attention_bias)",
                "places = Cast <to = 1> (cols)  slope = Constant <value = float[1, 2, 1, 1] {0.5, "
                "0.25}> ()  alibi = Mul (places, slope)  biased = Add (scaled, alibi)  "
                "masked = Add (biased, attention_bias)",
                "a linear bias beside a sink"},
        Changed{"alibi_in_the_mask.onnxtxt", "distance = Abs (back)",
                "other = Add (back, o)  distance = Abs (other)", "mask: "},
        Changed{"alibi_in_the_mask.onnxtxt", "alibi = Mul (distance_float, slopes)",
                "by_query = Unsqueeze (rows_column, head_axes)  "
                "query_float = Cast <to = 1> (by_query)  each = Mul (query_float, slopes)  "
                "alibi = Mul (distance_float, each)",
                "mask: "}));

}  // namespace
}  // namespace pagefuse
