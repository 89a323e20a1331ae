// Decoders of a layer or two, written by hand as exporters write larger ones (tests/data/decoders): with
// pages they give the tokens that they give as they are.
#include "gtest/gtest.h"
#include "paths.h"
#include "tests/models/model_data.h"

#include "pagefuse/ir/onnx_io.h"
#include "pagefuse/runtime/engine.h"
#include "pagefuse/runtime/plain_decoder.h"

namespace pagefuse {
namespace {

struct Decoder {
  const char* file;
  int attentions;
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
  EXPECT_EQ(CountFused((*engine)->session().model(), "RopeCacheInsert"), 1);
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
// with one cache, as Gemma 3n has them.
INSTANTIATE_TEST_SUITE_P(Decoders, SmallDecoder,
                         testing::Values(Decoder{"multi_head_attention.onnxtxt", 1},
                                         Decoder{"sinks.onnxtxt", 1},
                                         Decoder{"shared_keys_and_values.onnxtxt", 2}));

}  // namespace
}  // namespace pagefuse
