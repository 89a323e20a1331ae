// SPDX-License-Identifier: Apache-2.0
// Fusions find what is computed, however it is written: the decomposition of every op that the
// passes fuse, and the graphs of the fusion corpus, as they are and in another form.
// mutation_sweep runs more of the same, and what is computed otherwise.
#include <algorithm>
#include <filesystem>

#include "fusion_case.h"
#include "graph_mutations.h"
#include "gtest/gtest.h"
#include "paths.h"
#include "text_case.h"
#include "tools/check/testcase.h"

namespace pagefuse {
namespace {

using testing::Idioms;
using testing::Mutate;
using testing::Mutation;
using testing::Random;
using testing::Variants;

// A case and where it lies.
struct Source {
  std::string folder;
  bool golden = false;

  std::string name() const {
    const std::filesystem::path path(folder);
    const std::string leaf = path.filename().string();
    return golden ? path.parent_path().filename().string() + "_" + leaf : leaf;
  }
  absl::StatusOr<FusionCase> Load() const {
    return golden ? LoadDecompositionCase(folder, /*symbols=*/true) : LoadCorpusCase(folder);
  }
};
void PrintTo(const Source& source, std::ostream* os) { *os << source.name(); }

std::vector<Source> Sources() {
  std::vector<Source> sources;
  for (const std::string& folder : FindTestCases(TestDataPath("golden"))) {
    const bool refused = folder.find("/err_") != std::string::npos;
    if (!refused) sources.push_back({folder, true});
  }
  for (const std::string& folder : FindTestCases(CorpusFolder(""))) {
    const absl::StatusOr<FusionCase> one = LoadCorpusCase(folder);
    if (one.ok() && one->must_fuse) sources.push_back({folder, false});
  }
  return sources;
}

class FuseMutations : public ::testing::TestWithParam<Source> {
 protected:
  void SetUp() override {
    auto loaded = GetParam().Load();
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    case_ = *std::move(loaded);
    for (const char c : case_.name) seed_ = 31 * seed_ + static_cast<unsigned char>(c);
  }

  // Which block a pool of one block is read at does not show in what is computed: the table is lost, and
  // with it the fusion.
  bool ShowsItsTable() const {
    return !case_.name.starts_with("PagedAttention.decode_bf16_d256_b64_g2");
  }

  // The graph fuses as it should and gives the same numbers.
  void ExpectFused(const Model& graph) {
    const auto outcome = RunFusion(case_, graph);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(outcome->fusion.ok(), ShowsItsTable()) << outcome->fusion;
    const absl::Status same = SameNumbers(case_, case_.feeds, outcome->model, graph);
    EXPECT_TRUE(same.ok()) << same;
  }

  // The next of the mutations that is for the graph, applied to a copy.
  std::optional<std::pair<std::string, Model>> Mutated(std::span<const Mutation> mutations,
                                                       Random& random, double share) {
    for (size_t tried = 0; tried < mutations.size(); ++tried) {
      const Mutation& mutation = mutations[random() % mutations.size()];
      Model graph = case_.plain.Clone();
      const auto count = Mutate(graph, mutation, share, random);
      if (count.ok() && *count > 0) return std::pair(std::string(mutation.name), std::move(graph));
    }
    return std::nullopt;
  }

  FusionCase case_;
  uint32_t seed_ = 1;
};

TEST_P(FuseMutations, FuseWhatIsWrittenOut) { ExpectFused(case_.plain); }

TEST_P(FuseMutations, FuseOtherVariants) {
  Random random(seed_);
  const auto mutated = Mutated(Variants(), random, /*share=*/0.5);
  ASSERT_TRUE(mutated.has_value());
  SCOPED_TRACE(mutated->first);
  ExpectFused(mutated->second);
}

TEST_P(FuseMutations, FuseOtherIdioms) {
  // One that rounds otherwise on the case's numbers, as sums in another order do, tells nothing.
  constexpr int kTries = 20;
  Random random(seed_);
  absl::Status same;
  for (int i = 0; i < kTries; ++i) {
    const auto mutated = Mutated(Idioms(), random, /*share=*/0.5);
    if (!mutated) GTEST_SKIP() << "no node is of an idiom";
    same = SameNumbers(case_, case_.feeds, mutated->second, case_.plain);
    if (!same.ok()) continue;
    SCOPED_TRACE(mutated->first);
    return ExpectFused(mutated->second);
  }
  FAIL() << "all of " << kTries << " mutations change numbers: " << same;
}

INSTANTIATE_TEST_SUITE_P(Cases, FuseMutations, ::testing::ValuesIn(Sources()),
                         [](const auto& info) { return info.param.name(); });

// Graphs that were written from the specifications of the ops, in the manner of several exporters.
class OtherExporters : public ::testing::TestWithParam<std::string> {};

TEST_P(OtherExporters, FuseAndGiveTheSameNumbers) {
  const auto one = LoadTextCase(GetParam());
  ASSERT_TRUE(one.ok()) << one.status();
  const auto outcome = RunFusion(*one, one->plain);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(outcome->fusion.ok()) << outcome->fusion;
  const absl::Status same = SameNumbers(*one, one->feeds, outcome->model, one->plain);
  EXPECT_TRUE(same.ok()) << same;
}

INSTANTIATE_TEST_SUITE_P(Texts, OtherExporters, ::testing::ValuesIn(TextCases()),
                         [](const auto& info) {
                           return std::filesystem::path(info.param).stem().string();
                         });

}  // namespace
}  // namespace pagefuse
