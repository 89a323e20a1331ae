// SPDX-License-Identifier: Apache-2.0
// Memory that is shared between values: random graphs against a run in which nothing is shared, and
// caches that are updated in place.
#include <cmath>
#include <map>
#include <random>
#include <thread>

#include "must.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/runtime/session.h"

namespace pagefuse {
namespace {

using ::testing::ElementsAre;

using Feeds = std::map<std::string, Tensor>;

// Writes random graphs as text. Values have one of four forms, so that every op finds operands:
// [N, 4], [4, N], [1, N, 4] and [N, 2].
class GraphWriter {
 public:
  explicit GraphWriter(unsigned seed) : random_(seed) {}

  std::string Write(int nodes) {
    std::string body;
    for (int i = 0; i < nodes; ++i) StrAppend(&body, "  ", Line(), "\n");
    std::string outputs;
    const size_t count = 1 + Pick(4);
    for (size_t i = 0; i < count; ++i) {
      // Outputs have names of their own; some are views, some are read by others too.
      StrAppend(&body, "  out", i, " = ", Pick(2) == 0 ? "Identity" : "Abs", " (", Any(Pick(4)),
                ")\n");
      StrAppend(&outputs, i == 0 ? "" : ", ", "float[] out", i);
    }
    return StrCat(R"(<ir_version: 10, opset_import: ["" : 20]>
g (float[N, 4] x0, float[N, 4] x1, float[4, N] x2, float[1, N, 4] x3, float[N, 2] x4) => ()",
                  outputs, R"()
<float[4] weight = {1, -2, 0.5, 3}, float[1, 4] row = {0.5, 1, -1, 2}, int64[2] flat = {-1, 4},
 int64[1] zero = {0}>
{
)",
                  body, "}\n");
  }

 private:
  enum Form { kRows, kColumns, kBatch, kHalf };

  size_t Pick(size_t count) { return random_() % count; }
  std::string New(size_t form) {
    names_[form].push_back(StrCat("v", next_++));
    return names_[form].back();
  }
  std::string Any(size_t form) { return names_[form][Pick(names_[form].size())]; }

  std::string Line() {
    const size_t form = Pick(4);
    const std::string a = Any(form), b = Any(form);
    switch (Pick(10)) {
      case 0:
        return StrCat(New(form), " = ", Pick(2) == 0 ? "Tanh" : "Neg", " (", a, ")");
      case 1:
        return StrCat(New(form), " = ", Pick(2) == 0 ? "Add" : "Sub", " (", a, ", ", b, ")");
      case 2:
        return StrCat(New(form), " = Max (", a, ", ", b, ", ", a, ")");
      case 3: {
        const std::string from = Any(kRows);
        return StrCat(New(kRows), " = ", Pick(2) == 0 ? "Add (weight, " : "Mul (row, ", from, ")");
      }
      case 4: {
        const bool down = Pick(2) == 0;
        const std::string from = Any(down ? kRows : kColumns);
        return StrCat(New(down ? kColumns : kRows), " = Transpose <perm = [1, 0]> (", from, ")");
      }
      case 5: {
        const bool up = Pick(2) == 0;
        const std::string from = Any(up ? kRows : kBatch);
        return up ? StrCat(New(kBatch), " = Unsqueeze (", from, ", zero)")
                  : StrCat(New(kRows), " = Squeeze (", from, ", zero)");
      }
      case 6: {
        const std::string from = Any(kBatch);
        return StrCat(New(kRows), " = Reshape (", from, ", flat)");
      }
      case 7: {
        const std::string from = Any(kRows);
        const std::string left = New(kHalf), right = New(kHalf);
        return StrCat(left, ", ", right, " = Split <axis = 1, num_outputs = 2> (", from, ")");
      }
      case 8: {
        const std::string left = Any(kHalf), right = Any(kHalf);
        return StrCat(New(kRows), " = Concat <axis = -1> (", left, ", ", right, ")");
      }
      default:
        return StrCat(New(form), " = ", Pick(2) == 0 ? "Softmax" : "Identity", " (", a, ")");
    }
  }

  std::mt19937 random_;
  std::vector<std::string> names_[4] = {{"x0", "x1"}, {"x2"}, {"x3"}, {"x4"}};
  int next_ = 0;
};

Feeds RandomFeeds(int64_t n, std::mt19937& random) {
  std::normal_distribution<float> normal;
  Feeds feeds;
  const std::vector<std::vector<int64_t>> dims = {{n, 4}, {n, 4}, {4, n}, {1, n, 4}, {n, 2}};
  for (size_t i = 0; i < dims.size(); ++i) {
    Tensor tensor = *Tensor::Allocate(DataType::kFloat, dims[i]);
    for (float& value : tensor.mutable_values<float>()) value = normal(random);
    feeds[StrCat("x", i)] = tensor;
  }
  return feeds;
}

// Every value in memory of its own.
std::vector<Tensor> RunWithoutSharing(const Model& model, const Feeds& feeds) {
  std::map<const Value*, Tensor> values;
  for (const Value* value : model.graph->initializers()) values[value] = *value->initializer();
  for (const Value* value : model.graph->inputs()) values[value] = *feeds.at(value->name()).Clone();
  for (const auto& node : model.graph->nodes()) {
    std::vector<Tensor> inputs;
    for (const Value* input : node->inputs()) inputs.push_back(*values.at(input).Clone());
    auto outputs = Must(EvaluateNode(*node, model.OpsetVersion(node->domain()), inputs));
    for (int i = 0; i < node->num_outputs(); ++i) values[node->output(i)] = outputs[i];
  }
  std::vector<Tensor> outputs;
  for (const Value* output : model.graph->outputs()) outputs.push_back(values.at(output));
  return outputs;
}

void ExpectSame(const std::vector<Tensor>& got, const std::vector<Tensor>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].dims(), want[i].dims());
    for (int64_t j = 0; j < got[i].size(); ++j) {
      const float a = got[i].values<float>()[j], b = want[i].values<float>()[j];
      ASSERT_TRUE(std::isnan(a) ? std::isnan(b) : a == b || std::abs(a - b) <= 1e-6f * std::abs(b))
          << "output " << i << ", element " << j << ": " << a << ", expected " << b;
    }
  }
}

std::unique_ptr<Session> MakeSession(const std::string& text, bool optimise = false) {
  return Must(Session::Create(Must(ParseModel(text)), {.optimise = optimise}));
}

TEST(Executor, SharedMemoryChangesNoResult) {
  int64_t arena = 0, separate = 0;
  for (unsigned seed = 0; seed < 150; ++seed) {
    const std::string text = GraphWriter(seed).Write(30);
    const std::unique_ptr<Session> session = MakeSession(text);
    ASSERT_NE(session, nullptr);
    std::mt19937 random(seed);
    // Sizes grow and shrink, so that the arena is planned anew between runs.
    for (int64_t n : {3, 3, 17, 1, 17, 0, 40, 5}) {
      const Feeds feeds = RandomFeeds(n, random);
      Feeds given;
      for (const auto& [name, tensor] : feeds) given[name] = *tensor.Clone();
      const auto outputs = Must(session->Run(given));
      ExpectSame(outputs, RunWithoutSharing(session->model(), feeds));
      ASSERT_FALSE(HasFatalFailure()) << "seed " << seed << ", N = " << n << "\n" << text;
      for (const auto& [name, tensor] : feeds) ASSERT_TRUE(tensor.IdenticalTo(given[name])) << name;
    }
    arena += session->stats().arena_bytes;
    separate += 30 * 40 * 4 * 4;
  }
  EXPECT_LT(arena, separate / 2);
}

TEST(Executor, OutputsOfOneRunOutliveTheNext) {
  const std::unique_ptr<Session> session = MakeSession(R"(
    <ir_version: 10, opset_import: ["" : 20]>
    g (float[N] x) => (float[N] y, float[N] z) { a = Neg (x)  y = Abs (a)  b = Neg (a)  z = Identity (b) })");
  const std::vector<Tensor> first = *session->Run({{"x", Tensor::Of<float>({2}, {-1, 2})}});
  const std::vector<Tensor> second = *session->Run({{"x", Tensor::Of<float>({2}, {7, -8})}});
  EXPECT_THAT(first[0].values<float>(), ElementsAre(1, 2));
  EXPECT_THAT(first[1].values<float>(), ElementsAre(-1, 2));
  EXPECT_THAT(second[0].values<float>(), ElementsAre(7, 8));
}

TEST(Executor, LargeOutputsThatNobodyHoldsGiveTheirMemoryToTheNextRun) {
  const std::unique_ptr<Session> session = MakeSession(R"(
    <ir_version: 10, opset_import: ["" : 20]>
    g (float[N] x) => (float[N] y) { y = Neg (x) })");
  constexpr int64_t kLarge = int64_t{1} << 19;
  const auto run = [&](int64_t n, float value) {
    const std::vector<float> x(static_cast<size_t>(n), value);
    std::vector<Tensor> outputs = *session->Run({{"x", Tensor::Of<float>({n}, x)}});
    for (const float y : outputs[0].values<float>()) {
      if (y != -value) ADD_FAILURE() << "expected " << -value << ", got " << y;
      if (y != -value) break;
    }
    return outputs[0];
  };
  Tensor held = run(kLarge, 1);
  const void* const memory = held.data();
  const Tensor other = run(kLarge, 2);
  EXPECT_NE(other.data(), memory);
  EXPECT_EQ(held.values<float>()[0], -1);
  held = Tensor();
  // `other` is the one that was kept, and is held.
  EXPECT_NE(run(kLarge, 3).data(), other.data());
  const void* const kept = run(kLarge, 4).data();
  EXPECT_EQ(run(kLarge, 5).data(), kept);
  EXPECT_EQ(run(kLarge - 7, 6).data(), kept);
  EXPECT_EQ(run(kLarge, 7).data(), kept);
  // Larger, much smaller, and large again.
  for (const int64_t n : {3 * kLarge, int64_t{5}, int64_t{0}, kLarge, 2 * kLarge}) run(n, 8);
  EXPECT_EQ(other.values<float>()[kLarge - 1], -2);
}

TEST(Executor, InputsAndConstantsMayBeOutputs) {
  const std::unique_ptr<Session> session = MakeSession(R"(
    <ir_version: 10, opset_import: ["" : 20]>
    g (float[2] x) => (float[2] x, float[2] w, float[2, 1] y)
    <float[2] w = {3, 4}, int64[1] axis = {1}> { y = Unsqueeze (w, axis) })");
  Tensor x = Tensor::Of<float>({2}, {1, 2});
  const std::vector<Tensor> outputs = *session->Run({{"x", x}});
  EXPECT_THAT(outputs[0].values<float>(), ElementsAre(1, 2));
  EXPECT_THAT(outputs[1].values<float>(), ElementsAre(3, 4));
  EXPECT_EQ(outputs[2].dims(), (std::vector<int64_t>{2, 1}));
}

// One head of size 1, blocks of one token: key cache [NB, 1, 1, 1].
constexpr std::string_view kInsert = R"(<ir_version: 10, opset_import: ["" : 20, "pagefuse" : 1]>
g (float[T, 1, 1] k, float[T, 1, 1] v, float[NB, 1, 1, 1] kc, float[NB, 1, 1, 1] vc, int64[T] slots)
  => ($outputs) {
$body
}
)";

std::unique_ptr<Session> InsertSession(const std::string& outputs, const std::string& body) {
  std::string text(kInsert);
  text.replace(text.find("$outputs"), 8, outputs);
  text.replace(text.find("$body"), 5, body);
  return MakeSession(text);
}

Feeds InsertFeeds() {
  return {{"k", Tensor::Of<float>({1, 1, 1}, {5})},
          {"v", Tensor::Of<float>({1, 1, 1}, {6})},
          {"kc", Tensor::Of<float>({3, 1, 1, 1}, {1, 2, 3})},
          {"vc", Tensor::Of<float>({3, 1, 1, 1}, {10, 20, 30})},
          {"slots", Tensor::Of<int64_t>({1}, {1})}};
}

TEST(Executor, AnUpdatedCacheIsTheCallersMemory) {
  const auto session = InsertSession("float[] ko, float[] vo",
                                     "ko, vo = pagefuse.PagedCacheInsert (k, v, kc, vc, slots)");
  const Feeds feeds = InsertFeeds();
  const std::vector<Tensor> outputs = *session->Run(feeds);
  EXPECT_EQ(outputs[0].data(), feeds.at("kc").data());
  EXPECT_THAT(feeds.at("kc").values<float>(), ElementsAre(1, 5, 3));
  EXPECT_THAT(feeds.at("vc").values<float>(), ElementsAre(10, 6, 30));
}

TEST(Executor, ACacheThatIsReadLaterIsCopiedFirst) {
  const auto session = InsertSession("float[] ko, float[] vo, float[] old",
                                     "ko, vo = pagefuse.PagedCacheInsert (k, v, kc, vc, slots)\n"
                                     "old = Neg (kc)");
  const Feeds feeds = InsertFeeds();
  const std::vector<Tensor> outputs = *session->Run(feeds);
  EXPECT_THAT(feeds.at("kc").values<float>(), ElementsAre(1, 2, 3));
  EXPECT_THAT(outputs[0].values<float>(), ElementsAre(1, 5, 3));
  EXPECT_THAT(outputs[2].values<float>(), ElementsAre(-1, -2, -3));
  EXPECT_EQ(outputs[1].data(), feeds.at("vc").data());
}

TEST(Executor, ACacheThatTheGraphComputesBecomesAnOutput) {
  const auto session =
      InsertSession("float[] ko, float[] vo",
                    "negative = Neg (kc)\n"
                    "ko, vo = pagefuse.PagedCacheInsert (k, v, negative, vc, slots)");
  for (int round = 0; round < 2; ++round) {
    const Feeds feeds = InsertFeeds();
    const std::vector<Tensor> outputs = Must(session->Run(feeds));
    EXPECT_THAT(outputs[0].values<float>(), ElementsAre(-1, 5, -3));
    EXPECT_THAT(feeds.at("kc").values<float>(), ElementsAre(1, 2, 3));
  }
}

TEST(Executor, ACacheMayBeUpdatedTwice) {
  const auto session = InsertSession("float[] ko2, float[] vo2, float[] seen",
                                     "ko, vo = pagefuse.PagedCacheInsert (k, v, kc, vc, slots)\n"
                                     "seen = Abs (ko)\n"
                                     "ko2, vo2 = pagefuse.PagedCacheInsert (v, k, ko, vo, slots)");
  const Feeds feeds = InsertFeeds();
  const std::vector<Tensor> outputs = *session->Run(feeds);
  EXPECT_THAT(outputs[0].values<float>(), ElementsAre(1, 6, 3));
  EXPECT_THAT(outputs[2].values<float>(), ElementsAre(1, 5, 3));
  EXPECT_EQ(outputs[0].data(), feeds.at("kc").data());
}

TEST(Executor, AnOutputThatIsUpdatedFurtherKeepsItsContents) {
  const auto session = InsertSession("float[] ko, float[] vo, float[] ko2, float[] vo2",
                                     "ko, vo = pagefuse.PagedCacheInsert (k, v, kc, vc, slots)\n"
                                     "ko2, vo2 = pagefuse.PagedCacheInsert (v, k, ko, vo, slots)");
  const std::vector<Tensor> outputs = *session->Run(InsertFeeds());
  EXPECT_THAT(outputs[0].values<float>(), ElementsAre(1, 5, 3));
  EXPECT_THAT(outputs[2].values<float>(), ElementsAre(1, 6, 3));
}

TEST(Executor, AReadOnlyCacheIsRefusedBeforeAnythingIsWritten) {
  const auto session = InsertSession("float[] ko, float[] vo",
                                     "ko, vo = pagefuse.PagedCacheInsert (k, v, kc, vc, slots)");
  Feeds feeds = InsertFeeds();
  const Tensor vc = feeds.at("vc");
  feeds["vc"] =
      *Tensor::View(DataType::kFloat, vc.dims(), Buffer::BorrowConst(vc.data(), vc.byte_size()));
  const absl::Status status = session->Run(feeds).status();
  EXPECT_EQ(StdView(status.message()),
            "node \"ko\" (pagefuse.PagedCacheInsert): input 3 is updated in place, but its memory "
            "is read-only");
  EXPECT_THAT(feeds.at("kc").values<float>(), ElementsAre(1, 2, 3));
}

TEST(Executor, BadSlotsAreRefusedBeforeAnythingIsWritten) {
  const auto session = InsertSession("float[] ko, float[] vo",
                                     "ko, vo = pagefuse.PagedCacheInsert (k, v, kc, vc, slots)");
  Feeds feeds = InsertFeeds();
  feeds["slots"] = Tensor::Of<int64_t>({1}, {3});
  EXPECT_FALSE(session->Run(feeds).ok());
  EXPECT_THAT(feeds.at("kc").values<float>(), ElementsAre(1, 2, 3));
}

TEST(Session, FeedsAreCheckedAgainstTheInputs) {
  const std::unique_ptr<Session> session = MakeSession(R"(
    <ir_version: 10, opset_import: ["" : 20]>
    g (float[past, 2] a, float[seq, 2] b, float["past + seq"] mask) => (float[] y) {
      y = Concat <axis = 0> (a, b)
    })");
  const auto zeros = [](std::vector<int64_t> dims) {
    return *Tensor::Allocate(DataType::kFloat, std::move(dims));
  };
  const auto error = [&](const Feeds& feeds) {
    return std::string(StdView(session->Run(feeds).status().message()));
  };
  const Feeds good = {{"a", zeros({3, 2})}, {"b", zeros({1, 2})}, {"mask", zeros({4})}};
  EXPECT_EQ(error(good), "");
  Feeds feeds = good;
  feeds["mask"] = zeros({5});
  EXPECT_EQ(
      error(feeds),
      "input \"mask\": expected float[past + seq] with past + seq = 4 as in other inputs, got "
      "float[5]");
  feeds = good;
  feeds["a"] = zeros({3, 1});
  EXPECT_EQ(error(feeds), "input \"a\": expected float[past, 2], got float[3, 1]");
  feeds["a"] = zeros({3});
  EXPECT_EQ(error(feeds), "input \"a\": expected float[past, 2], got float[3]");
  feeds["a"] = *Tensor::Allocate(DataType::kDouble, {3, 2});
  EXPECT_EQ(error(feeds), "input \"a\": expected float[past, 2], got double[3, 2]");
  feeds.erase("a");
  EXPECT_EQ(error(feeds), "input \"a\" was not fed");
  feeds = good;
  feeds["c"] = zeros({1});
  EXPECT_EQ(error(feeds), "\"c\" is fed but is no input; inputs are a, b, mask");
  EXPECT_EQ(session->Run(good, {"nothing"}).status().code(), absl::StatusCode::kNotFound);
}

TEST(Session, BoundMemoryIsWrittenInPlace) {
  const std::unique_ptr<Session> session = MakeSession(R"(
    <ir_version: 10, opset_import: ["" : 20]>
    g (float[N] x) => (float[N] y) { a = Neg (x)  y = Neg (a) })");
  const Tensor y = *Tensor::Allocate(DataType::kFloat, {2});
  ASSERT_TRUE(session->Bind("y", y).ok());
  ASSERT_TRUE(session->Bind("x", Tensor::Of<float>({2}, {3, 4})).ok());
  ASSERT_TRUE(session->Run({}).ok());
  EXPECT_THAT(y.values<float>(), ElementsAre(3, 4));
  EXPECT_EQ(session->stats().output_bytes, 0);
  EXPECT_EQ(StdView(session->Run({{"x", Tensor::Of<float>({1}, {3})}}).status().message()),
            "output \"y\": bound memory is float[2], expected float[1]");
  ASSERT_TRUE(session->Unbind("y").ok());
  EXPECT_EQ(session->Unbind("y").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(session->Bind("z", y).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ((*session->Run({}))[0].size(), 2);
}

TEST(Session, SessionsOfDifferentThreadsRunAtOnce) {
  const std::string text = GraphWriter(3).Write(40);
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 3; ++seed) {
    threads.emplace_back([&text, seed] {
      const std::unique_ptr<Session> session = MakeSession(text);
      std::mt19937 random(seed);
      // Large enough for kernels that split their work among threads.
      for (int64_t n : {5, 40000, 100}) {
        const Feeds feeds = RandomFeeds(n, random);
        ExpectSame(*session->Run(feeds), RunWithoutSharing(session->model(), feeds));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace pagefuse
