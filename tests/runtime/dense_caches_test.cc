// SPDX-License-Identifier: Apache-2.0
// Caches that lie beside the pages, and who reads them so.
#include "pagefuse/runtime/dense_caches.h"

#include <memory>
#include <string>
#include <vector>

#include "must.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text.h"

namespace pagefuse {
namespace {

// One layer that writes its cache and reads it, and `more` nodes with `outputs` behind it.
std::string Paged(const std::string& outputs, const std::string& more) {
  const std::string groups =
      R"([{\"block_size\":4,\"caches\":[\"kv_cache.0.key\",\"kv_cache.0.value\"],\"name\":\"full\",\"sliding_window\":0}])";
  return StrCat(R"(<ir_version: 10, opset_import: ["" : 24, "pagefuse" : 1],
  metadata_props: ["pagefuse.cache_groups": ")",
                groups, R"("]>
g (float[T, 2, 4] x, int32["B + 1"] query_start_loc, int32[B] seq_lens, int32[B, M] "block_table.full",
   int64[T] "slot_mapping.full", float["num_blocks.full", 4, 2, 4] "kv_cache.0.key",
   float["num_blocks.full", 4, 2, 4] "kv_cache.0.value")
  => (float[T, 2, 4] y, "kv_cache_out.0.key", "kv_cache_out.0.value")",
                outputs, R"() {
  "kv_cache_out.0.key", "kv_cache_out.0.value" =
    pagefuse.PagedCacheInsert (x, x, "kv_cache.0.key", "kv_cache.0.value", "slot_mapping.full")
  y = pagefuse.PagedAttention <scale = 0.5, is_causal = 1>
    (x, "kv_cache_out.0.key", "kv_cache_out.0.value", query_start_loc, seq_lens, "block_table.full")
  )",
                more, "}\n");
}

std::vector<std::string> Texts(const std::vector<DenseCache>& caches) {
  std::vector<std::string> texts;
  for (const DenseCache& cache : caches) texts.push_back(cache.Text());
  return texts;
}

// What a session finds, which a model that nothing runs has to tell as well.
std::vector<std::string> Found(const std::string& text) {
  Model model = Must(ParseModel(text));
  const CacheLayout layout = Must(CacheLayout::FromModel(model));
  const std::vector<std::string> told = Texts(Must(DenseCaches(layout, model)));
  const auto session = Must(Session::Create(std::move(model), {.optimise = false}));
  EXPECT_EQ(Texts(DenseCaches(layout, *session)), told);
  return told;
}

TEST(DenseCaches, AreNoneWhereAllOpsTakeBlocks) {
  EXPECT_THAT(Found(Paged("", "")), testing::IsEmpty());
}

TEST(DenseCaches, AreThoseThatAnOtherOpReads) {
  EXPECT_THAT(
      Found(Paged(", float[] peek", R"(peek = ReduceMax <keepdims = 0> ("kv_cache_out.0.value"))")),
      testing::ElementsAre("cache \"kv_cache.0.value\" lies beside the pages: node \"peek\" "
                           "(ReduceMax) reads it as a dense tensor"));
}

// The first of several is told, and a body counts as the node that has it.
TEST(DenseCaches, NameTheirFirstReader) {
  const std::string body = R"(
    if_read = If (flag) <then_branch = then () => (float[] t) { t = ReduceMax <keepdims = 0> ("kv_cache_out.0.key") },
                         else_branch = other () => (float[] e) { e = Constant <value_float = 1.0> () }>
    late = ReduceMin <keepdims = 0> ("kv_cache_out.0.key"))";
  std::string text = Paged(", float[] if_read, float[] late", body);
  text.replace(text.find("g (float"), 3, "g (bool[] flag, ");
  EXPECT_THAT(Found(text),
              testing::ElementsAre("cache \"kv_cache.0.key\" lies beside the pages: node "
                                   "\"if_read\" (If) reads it as a dense tensor"));
}

// What is read before it is updated cannot be updated where it is.
TEST(DenseCaches, AreThoseThatAreReadAsTheyWere) {
  EXPECT_THAT(
      Found(Paged(", float[] peek", R"(peek = ReduceMax <keepdims = 0> ("kv_cache.0.key"))")),
      testing::ElementsAre("cache \"kv_cache.0.key\" lies beside the pages: node "
                           "\"kv_cache_out.0.key\" (pagefuse.PagedCacheInsert) reads it as a "
                           "dense tensor"));
}

// One that nothing could run is refused.
TEST(DenseCaches, OfAModelWithAnUnknownOpAreRefused) {
  Model model = Must(ParseModel(Paged(", float[] z", R"(z = pagefuse.Unknown (x))")));
  const CacheLayout layout = Must(CacheLayout::FromModel(model));
  EXPECT_THAT(std::string(DenseCaches(layout, model).status().message()),
              testing::HasSubstr("Unknown"));
}

}  // namespace
}  // namespace pagefuse
