// SPDX-License-Identifier: Apache-2.0
// Plans of pages for the layers of published models.
#include "pagefuse/ops/cache/page_plan.h"

#include <numeric>

#include "gtest/gtest.h"

namespace pagefuse {
namespace {

PageGroup Layers(const CacheGroupKey& key, int64_t layers, int64_t row_bytes) {
  const CacheGroup group = MakeCacheGroup(key, 16);
  return {group, std::vector<int64_t>(layers, row_bytes * group.block_size),
          key.kind == CacheKind::kState};
}

struct Model {
  std::string name;
  std::vector<PageGroup> groups;
  int64_t page_bytes, parts;
  double waste, waste_of_long;  // at most, of 4096 and of 32768 tokens
};
void PrintTo(const Model& model, std::ostream* os) { *os << model.name; }

std::vector<Model> Models() {
  using Key = CacheGroupKey;
  constexpr int64_t kLatent = 2 * 576, kIndexKey = 132;    // DeepSeek-V3.2
  constexpr int64_t kRow = 584, kState = 4 * 2 * 2 * 512;  // DeepSeek-V4: codes; keys and scores
  constexpr int64_t kKeyState = 4 * 2 * 2 * 128;           // of its indexer
  return {
      {"gemma3_1b",
       {Layers(Key::Full(), 4, 2 * 2 * 256), Layers(Key::Window(512), 22, 2 * 2 * 256)},
       65536,
       7,
       0.05,
       0.05},
      {"gemma3_27b",
       {Layers(Key::Full(), 10, 2 * 2 * 16 * 128), Layers(Key::Window(1024), 52, 2 * 2 * 16 * 128)},
       655360,
       13,
       0.05,
       0.05},
      {"deepseek_v3_2", {Layers(Key::Full(), 61, kLatent + kIndexKey)}, 1253184, 1, 0.01, 0.01},
      {"deepseek_v4",
       {Layers(Key::Window(128), 61, kRow), Layers(Key::Compressed(4), 30, kRow + kIndexKey),
        Layers(Key::Compressed(128), 31, kRow), Layers(Key::State(4, true), 30, kState + kKeyState),
        Layers(Key::State(128, false), 31, kState / 2)},
       126976,
       15,
       0.11,
       0.16},
  };
}

class PagePlanOf : public testing::TestWithParam<Model> {};

TEST_P(PagePlanOf, WastesLittle) {
  const Model& model = GetParam();
  const PagePlan plan = PlanPages(model.groups);
  EXPECT_EQ(plan.page_bytes, model.page_bytes);
  EXPECT_EQ(plan.num_parts(), model.parts);
  EXPECT_LE(plan.num_parts(), kMostPageParts);
  EXPECT_LE(PageWaste(plan, 4096), model.waste);
  EXPECT_LE(PageWaste(plan, 32768), model.waste_of_long);
  for (size_t g = 0; g < model.groups.size(); ++g) {
    const std::vector<int64_t>& parts = plan.parts[g];
    EXPECT_EQ(std::accumulate(parts.begin(), parts.end(), int64_t{0}),
              static_cast<int64_t>(model.groups[g].layer_bytes.size()));
    const int64_t rows = plan.groups[g].group.block_size;
    EXPECT_EQ(model.groups[g].group.block_size % rows, 0);
    EXPECT_TRUE(model.groups[g].may_shrink || rows == model.groups[g].group.block_size);
  }
}

INSTANTIATE_TEST_SUITE_P(PagePlan, PagePlanOf, testing::ValuesIn(Models()),
                         [](const auto& info) { return info.param.name; });

TEST(PagePlan, GroupsThatFillAPageAreNotCut) {
  const PagePlan plan = PlanPages({Layers(CacheGroupKey::Full(), 3, 64)});
  EXPECT_EQ(plan.parts, (std::vector<std::vector<int64_t>>{{3}}));
  EXPECT_EQ(plan.page_bytes, 3 * 16 * 64);
}

// Against a walk over all lengths.
TEST(PagePlan, BlocksAreThoseOfRowsThatLaterTokensSee) {
  using Key = CacheGroupKey;
  for (const Key& key :
       {Key::Full(), Key::Window(1), Key::Window(7), Key::Window(64), Key::State(4, true),
        Key::State(128, false), Key::Compressed(4), Key::Compressed(128)}) {
    const CacheGroup group = MakeCacheGroup(key, 4);
    for (int64_t tokens = 0; tokens <= 600; ++tokens) {
      int64_t blocks = 0, last = -1;
      for (int64_t row = group.FirstVisible(tokens); row < group.RowsOf(tokens); ++row) {
        blocks += row / group.block_size != last ? 1 : 0;
        last = row / group.block_size;
      }
      ASSERT_EQ(BlocksAt(group, tokens), blocks) << group.name << ", " << tokens;
    }
  }
}

}  // namespace
}  // namespace pagefuse
