// SPDX-License-Identifier: Apache-2.0
// Logits of the tokens that a step wants, and of no others.
#include <algorithm>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "must.h"
#include "tiny_decoder.h"

#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_ports.h"
#include "pagefuse/runtime/engine.h"
#include "pagefuse/runtime/paged_model.h"

namespace pagefuse {
namespace {

using ::testing::HasSubstr;

std::vector<int64_t> SomeTokens(std::mt19937& random, size_t count) {
  std::vector<int64_t> tokens(count);
  for (int64_t& token : tokens) token = static_cast<int64_t>(random() % kTinyVocabulary);
  return tokens;
}

std::unique_ptr<PagedModel> MakePaged(Model model, bool all_logits = false) {
  auto paged = Must(PagedModel::Create(std::move(model), {.all_logits = all_logits}));
  Must(paged->Reserve({64, 64, 64, 64}, 64));
  return paged;
}

// Appends tokens to sequences and runs them.
Tensor RunEntries(PagedModel& model, const std::vector<StepEntry>& entries,
                  const std::vector<int64_t>& tokens) {
  return Must(model.Run(tokens, Must(model.cache().Append(entries))));
}

// As files were before graphs took rows: those of last tokens, by query_start_loc.
Model WithLastRows(const PagedModel& paged) {
  Model model = paged.session().model().Clone();
  Graph& graph = *model.graph;
  Value* rows = graph.FindValue("logit_rows");
  GraphBuilder builder(graph, graph.nodes().front().get(), "last");
  Value* ends = builder.Add("Slice", {graph.FindValue("query_start_loc"), builder.Ints({1}),
                                      builder.Ints({INT64_MAX}), builder.Ints({0})});
  Value* last = builder.Add("Sub", {builder.Cast(ends, DataType::kInt64), builder.Int(1)});
  graph.ReplaceAllUses(rows, last);
  RemoveInput(graph, rows);
  ForgetShapes(graph);
  return model;
}

TEST(SelectLogits, ComputesOneRowForAPromptInEightPieces) {
  std::mt19937 random(1);
  const std::vector<int64_t> prompt = SomeTokens(random, 40);
  for (const bool before : {false, true}) {
    auto paged = MakePaged(TinyDecoder());
    if (before) paged = MakePaged(WithLastRows(*paged));
    const auto all = MakePaged(TinyDecoder(), /*all_logits=*/true);
    const Tensor expected = Must(all->Step({{all->cache().AddSequence(), prompt}}));
    const SequenceId sequence = paged->cache().AddSequence();
    for (int64_t piece = 0; piece < 8; ++piece) {
      const auto first = prompt.begin() + 5 * piece;
      const Tensor logits = RunEntries(*paged, {{sequence, 5, piece == 7}}, {first, first + 5});
      const int64_t rows = piece == 7 ? 1 : 0;
      ASSERT_EQ(logits.dims(), (std::vector<int64_t>{rows, kTinyVocabulary}));
      for (int64_t v = 0; v < rows * kTinyVocabulary; ++v) {
        EXPECT_NEAR(logits.values<float>()[v], expected.values<float>()[39 * kTinyVocabulary + v],
                    1e-5);
      }
    }
  }
}

// The product with the vocabulary reads the rows that were chosen and nothing else.
TEST(SelectLogits, StandsBeforeTheLastProduct) {
  const auto paged = MakePaged(TinyDecoder());
  const Graph& graph = *paged->session().model().graph;
  const Value* value = graph.FindValue("logits");
  bool product = false;
  while (value->producer() && !value->producer()->Is("Gather")) {
    product = product || value->producer()->op_type().ends_with("MatMul");
    value = value->producer()->input(0);
  }
  ASSERT_NE(value->producer(), nullptr);
  EXPECT_TRUE(product);
  EXPECT_EQ(value->producer()->input(1), graph.FindValue("logit_rows"));
}

TEST(SelectLogits, GivesTheRowsThatAreWantedInRandomSteps) {
  std::mt19937 random(2);
  const auto all = MakePaged(TinyDecoder(), /*all_logits=*/true);
  const auto some = MakePaged(TinyDecoder());
  for (int round = 0; round < 20; ++round) {
    std::vector<SequenceId> in_all, in_some;
    for (int i = 0; i < 4; ++i) {
      in_all.push_back(all->cache().AddSequence());
      in_some.push_back(some->cache().AddSequence());
    }
    for (int step = 0; step < 6; ++step) {
      std::vector<StepEntry> entries_all, entries_some;
      std::vector<int64_t> wanted;
      int64_t count = 0;
      for (size_t i = 0; i < 4; ++i) {
        const auto tokens = static_cast<int64_t>(random() % 4);
        const bool wants = random() % 2 == 0;
        entries_all.push_back({in_all[i], tokens});
        entries_some.push_back({in_some[i], tokens, wants});
        count += tokens;
        if (wants && tokens > 0) wanted.push_back(count - 1);
      }
      if (count == 0) continue;
      const std::vector<int64_t> tokens = SomeTokens(random, count);
      const Tensor expected = RunEntries(*all, entries_all, tokens);
      const Tensor logits = RunEntries(*some, entries_some, tokens);
      ASSERT_EQ(logits.dims()[0], static_cast<int64_t>(wanted.size()));
      for (size_t row = 0; row < wanted.size(); ++row) {
        for (int64_t v = 0; v < kTinyVocabulary; ++v) {
          EXPECT_NEAR(logits.values<float>()[row * kTinyVocabulary + v],
                      expected.values<float>()[wanted[row] * kTinyVocabulary + v], 1e-5);
        }
      }
    }
    for (int i = 0; i < 4; ++i) {
      all->cache().Remove(in_all[i]);
      some->cache().Remove(in_some[i]);
    }
  }
}

TEST(SelectLogits, RefusesRowsThatAFileDoesNotCompute) {
  const auto paged = MakePaged(WithLastRows(*MakePaged(TinyDecoder())));
  StepMetadata step = Must(paged->cache().Append({{paged->cache().AddSequence(), 3}}));
  step.logit_rows = {1};
  const absl::Status status = paged->Run({1, 2, 3}, step).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("expected a row for token 1 of the step"));
}

TEST(SelectLogits, GivesTheEngineTheSameTokensInPieces) {
  std::mt19937 random(3);
  Request request;
  request.prompt = SomeTokens(random, 40);
  request.max_new_tokens = 6;
  Request other = request;
  other.prompt = SomeTokens(random, 3);
  const auto whole = Must(Engine::Create(TinyDecoder(), {}));
  const auto pieces = Must(Engine::Create(TinyDecoder(), {.max_tokens_per_step = 5}));
  const auto expected = Must(whole->Generate({request, other}));
  const auto got = Must(pieces->Generate({request, other}));
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(got[i].tokens, expected[i].tokens);
  EXPECT_EQ(Must(pieces->Generate({request}))[0].tokens, expected[0].tokens);
}

}  // namespace
}  // namespace pagefuse
