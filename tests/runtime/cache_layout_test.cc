// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/cache_layout.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "must.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/ir/text/text.h"

namespace pagefuse {
namespace {

using ::testing::HasSubstr;

// A layer of each kind: D = 8, 4 index channels, windows of 4 tokens that overlap and of 8.
Model Graph(const std::string& rows = "[blocks, 16, 8]") {
  Model model = *ParseModel(R"(<ir_version: 10, opset_import: ["" : 24]>
g (int64[T] input_ids, float[a, 16, 8] window, float[b, 4, 32] state, float[c, 8, 16] long_state,
   float)" + rows + R"( rows, float[d, 16, 4] keys, float[e, 16, 8] long_rows) => (y)
{ y = Identity (input_ids) })");
  return model;
}

std::vector<CacheGroup> Groups() {
  std::vector<CacheGroup> groups = {MakeCacheGroup(CacheGroupKey::Window(32), 16),
                                    MakeCacheGroup(CacheGroupKey::State(4, true), 16),
                                    MakeCacheGroup(CacheGroupKey::State(8, false), 16),
                                    MakeCacheGroup(CacheGroupKey::Compressed(4), 16),
                                    MakeCacheGroup(CacheGroupKey::Compressed(8), 16)};
  groups[0].caches = {"window"};
  groups[1].caches = {"state"};
  groups[2].caches = {"long_state"};
  groups[3].caches = {"rows", "keys"};
  groups[4].caches = {"long_rows"};
  return groups;
}

TEST(CacheGroups, AreReadAsTheyWereWritten) {
  Model model = Graph();
  WriteCacheGroups(model, Groups());
  const auto read = Must(ReadCacheGroups(model));
  EXPECT_EQ(read, Groups());
}

TEST(CacheGroups, HaveNamesAndBlocksOfTheirOwn) {
  std::vector<std::string> names;
  std::vector<int64_t> block_sizes;
  for (const CacheGroup& group : Groups()) {
    names.push_back(group.name);
    block_sizes.push_back(group.block_size);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"window_32", "state_8_by_4", "state_8_by_8",
                                             "compressed_4", "compressed_8"}));
  EXPECT_EQ(block_sizes, (std::vector<int64_t>{16, 4, 8, 16, 16}));
  EXPECT_EQ(MakeCacheGroup(CacheGroupKey::Full(), 32).name, "full");
}

// The tokens whose rows those that follow `length` tokens may read, one after another: by what each kind is.
std::set<int64_t> NaiveTokensRead(const CacheGroup& group, int64_t length, int64_t ahead) {
  std::set<int64_t> read;
  for (int64_t position = length; position < length + ahead; ++position) {
    if (group.kind == CacheKind::kWindow) {
      for (int64_t t = position - group.sliding_window + 1; t <= position; ++t) read.insert(t);
    } else if (group.kind == CacheKind::kState && (position + 1) % group.ratio == 0) {
      // The token that closes a window reads its rows, and those of the one before where they overlap.
      const int64_t windows = group.sliding_window / group.ratio;
      const int64_t first = (position / group.ratio - (windows - 1)) * group.ratio;
      for (int64_t t = first; t <= position; ++t) read.insert(t);
    }
  }
  read.erase(read.begin(), read.lower_bound(0));
  read.erase(read.lower_bound(length), read.end());
  return read;
}

TEST(CacheGroups, NeedTheRowsThatANaiveListSays) {
  constexpr int64_t kMost = 4096;
  for (const CacheGroupKey& key :
       {CacheGroupKey::Window(1), CacheGroupKey::Window(5), CacheGroupKey::Window(32),
        CacheGroupKey::State(4, true), CacheGroupKey::State(4, false),
        CacheGroupKey::State(8, false), CacheGroupKey::State(128, true)}) {
    const CacheGroup group = MakeCacheGroup(key, 16);
    for (int64_t length = 0; length <= kMost; length += key.window < 100 ? 1 : 61) {
      const std::set<int64_t> read = NaiveTokensRead(group, length, 2 * key.ratio);
      const int64_t first = read.empty() ? length : *read.begin();
      ASSERT_EQ(std::min(group.FirstNeeded(length), length), first) << group.name << " " << length;
      ASSERT_LE(group.FirstVisible(length), first);
      ASSERT_EQ(group.RowsOf(length), length);
    }
  }
  for (const int64_t ratio : {1, 4, 8, 128}) {
    const CacheGroup group = MakeCacheGroup(CacheGroupKey::Compressed(ratio), 16);
    int64_t rows = 0;
    for (int64_t length = 1; length <= kMost; ++length) {
      rows += length % ratio == 0 ? 1 : 0;
      ASSERT_EQ(group.RowsOf(length), rows) << group.name << " " << length;
      ASSERT_EQ(group.FirstNeeded(length), 0);
    }
  }
  const CacheGroup full = MakeCacheGroup(CacheGroupKey::Full(), 16);
  for (const int64_t length : {0, 1, 17, 4096}) {
    EXPECT_EQ(full.RowsOf(length), length);
    EXPECT_EQ(full.FirstNeeded(length), 0);
  }
}

TEST(CacheGroups, OfFilesWithoutKindsAreFullOrWindows) {
  Model model = Graph();
  SetMetadata(model.metadata, "pagefuse.cache_groups",
              R"([{"name": "full", "sliding_window": 0, "block_size": 16, "caches": ["rows"]},
                  {"name": "w", "sliding_window": 9, "block_size": 16, "caches": ["window"]}])");
  const auto groups = Must(ReadCacheGroups(model));
  EXPECT_EQ(groups[0].key(), CacheGroupKey::Full());
  EXPECT_EQ(groups[1].key(), CacheGroupKey::Window(9));
  // They are written the same way.
  WriteCacheGroups(model, groups);
  const auto text = FindMetadata(model.metadata, "pagefuse.cache_groups");
  EXPECT_EQ(text->find("kind"), std::string_view::npos);
  EXPECT_EQ(text->find("ratio"), std::string_view::npos);
}

TEST(CacheGroups, SayWhatIsWrongWithThem) {
  const auto error = [](std::string text) {
    Model model = Graph();
    SetMetadata(model.metadata, "pagefuse.cache_groups", std::move(text));
    return std::string(ReadCacheGroups(model).status().message());
  };
  EXPECT_THAT(error("{}"), HasSubstr("expected a JSON list"));
  EXPECT_THAT(error(R"([{"name": 3}])"), HasSubstr("a group needs a string \"name\""));
  const std::string start = R"([{"name": "g", "caches": [], "block_size": )";
  EXPECT_THAT(error(start + "16}]"), HasSubstr("a group needs an integer \"sliding_window\""));
  EXPECT_THAT(error(start + R"(0, "sliding_window": 0}])"), HasSubstr("block_size 0"));
  EXPECT_THAT(error(start + R"(4, "sliding_window": -3}])"), HasSubstr("sliding_window -3"));
  EXPECT_THAT(error(start + R"(4, "sliding_window": 0, "ratio": 4}])"),
              HasSubstr("group \"g\": a size is out of range: kind full"));
  EXPECT_THAT(error(start + R"(4, "sliding_window": 4, "kind": "compressed"}])"),
              HasSubstr("kind compressed, sliding_window 4"));
  EXPECT_THAT(error(start + R"(4, "sliding_window": 0, "kind": "state"}])"),
              HasSubstr("kind state, sliding_window 0"));
  EXPECT_THAT(error(start + R"(4, "sliding_window": 0, "kind": "half"}])"),
              HasSubstr("expected kind full, window, state or compressed, got \"half\""));
}

TEST(CacheLayout, BytesAreThoseOfATokenAndThoseOfASequence) {
  Model model = Graph();
  WriteCacheGroups(model, Groups());
  const auto layout = Must(CacheLayout::FromModel(model));
  // A row of 8 and one of 4 floats for 4 tokens, one of 8 for 8.
  EXPECT_EQ(layout.bytes_per_token(), (8 + 4) * 4 / 4 + 8 * 4 / 8);
  EXPECT_EQ(layout.bytes_per_sequence(), 32 * 8 * 4 + 8 * 32 * 4 + 8 * 16 * 4);
}

// 7 bytes a row and 8 of padding.
TEST(CacheLayout, BytesOfABlockWithoutRowsAreThoseOfItsShape) {
  Model model = *ParseModel(R"(<ir_version: 10, opset_import: ["" : 24]>
g (int64[T] input_ids, uint8[a, 120] rows, uint8[b, 120] window) => (y)
{ y = Identity (input_ids) })");
  std::vector<CacheGroup> groups = {MakeCacheGroup(CacheGroupKey::Compressed(4), 16),
                                    MakeCacheGroup(CacheGroupKey::Window(32), 16)};
  groups[0].caches = {"rows"};
  groups[1].caches = {"window"};
  WriteCacheGroups(model, groups);
  const auto layout = Must(CacheLayout::FromModel(model));
  EXPECT_EQ(layout.bytes_per_token(), 2);  // 120 / 64 = 1.9
  EXPECT_EQ(layout.bytes_per_sequence(), 240);
  const auto tensors = Must(layout.Allocate(3));
  EXPECT_EQ(tensors.at("rows").dims(), (std::vector<int64_t>{3, 120}));
}

TEST(CacheLayout, CachesLieInPagesOfOneSizeUnlessTheyAreKeptApart) {
  Model model = Graph();
  WriteCacheGroups(model, Groups());
  auto layout = Must(CacheLayout::FromModel(model));
  int64_t largest = 0;
  for (const CacheGroup& group : layout.groups()) {
    largest = std::max(largest, layout.BlockBytes(group));
  }
  EXPECT_EQ(layout.page_bytes(), (largest + 63) / 64 * 64);
  const auto tensors = Must(layout.Allocate(5));
  const std::shared_ptr<Buffer>& pages = tensors.begin()->second.buffer();
  EXPECT_EQ(pages->size(), static_cast<size_t>(5 * layout.page_bytes()));
  for (const CacheGroup& group : layout.groups()) {
    for (const std::string& name : group.caches) {
      const Tensor& tensor = tensors.at(name);
      EXPECT_EQ(tensor.buffer(), pages);
      EXPECT_EQ(tensor.block_stride(), layout.page_bytes());
      EXPECT_EQ(tensor.dims()[0], 5);
    }
  }
  const std::string apart = layout.groups()[0].caches[0];
  layout.KeepApart({apart});
  const auto others = Must(layout.Allocate(5));
  EXPECT_EQ(others.at(apart).block_stride(), 0);
  EXPECT_EQ(layout.bytes_per_page(), layout.page_bytes() + others.at(apart).byte_size() / 5);
}

TEST(CacheLayout, ACacheOfOtherBlocksIsRefused) {
  Model model = Graph("[blocks, 8, 8]");
  WriteCacheGroups(model, Groups());
  EXPECT_THAT(std::string(CacheLayout::FromModel(model).status().message()),
              HasSubstr("cache \"rows\": expected [num_blocks, 16, ...] or bytes [num_blocks, S], "
                        "got [blocks, 8, 8]"));
}

TEST(CacheLayout, BlocksAreThoseOfRows) {
  Model model = Graph();
  WriteCacheGroups(model, Groups());
  const auto layout = Must(CacheLayout::FromModel(model));
  const std::vector<CacheGroup>& groups = layout.groups();
  // Rows of 4 tokens: 15 of 63 tokens, 16 of 64, none of 3.
  EXPECT_EQ(layout.BlocksFor(groups[3], {63}, 63), 1);
  EXPECT_EQ(layout.BlocksFor(groups[3], {68}, 68), 2);
  EXPECT_EQ(layout.BlocksFor(groups[3], {3, 67}, 67), 1);
  // A window of 32 in steps of 8: 40 rows are 3 blocks, cut at either end.
  EXPECT_EQ(layout.BlocksFor(groups[0], {1000}, 8), 5);
  EXPECT_EQ(layout.BlocksFor(groups[0], {1000}, 1000), 63);
  // A state of 8 rows in blocks of 4.
  EXPECT_EQ(layout.BlocksFor(groups[1], {1000}, 1), 5);
}

}  // namespace
}  // namespace pagefuse
