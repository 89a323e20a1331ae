// SPDX-License-Identifier: Apache-2.0
// A node as a host runs it, without a host.
#include "plugin/ort/node_kernel.h"

#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "must.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/registry/registry.h"

namespace pagefuse::ort {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Memory of the test's; notes what it is asked.
class FakeHost final : public CallHost {
 public:
  absl::StatusOr<void*> Output(int output, const std::vector<int64_t>& dims) override {
    asked_.push_back(output);
    if (bound.count(output) > 0) return bound[output];
    auto& memory = memory_[output];
    memory.resize(*ElementCount(dims));
    return memory.data();
  }
  void KernelChosen(std::string_view kernel) override { kernels.emplace_back(kernel); }
  void Copied(int input, int output, int64_t bytes) override {
    copies.push_back(StrCat(input, " to ", output, ": ", bytes));
  }

  std::vector<float>& memory(int output) { return memory_[output]; }
  const std::vector<int>& asked() const { return asked_; }

  std::map<int, void*> bound;
  std::vector<std::string> kernels, copies;

 private:
  std::vector<int> asked_;
  std::map<int, std::vector<float>> memory_;
};

constexpr int64_t kBlocks = 2, kBlockSize = 4, kHeads = 1, kHeadSize = 8, kRow = kHeads * kHeadSize;
constexpr int64_t kCacheSize = kBlocks * kBlockSize * kRow;

// Inserts tokens into two caches of floats.
struct Insert {
  explicit Insert(int64_t tokens)
      : keys(tokens * kRow, 1.0F), values(tokens * kRow, 2.0F), slots(tokens) {
    for (int64_t i = 0; i < tokens; ++i) slots[i] = i;
  }

  static NodeSpec Spec() {
    NodeSpec spec;
    spec.name = "insert";
    for (const char* name : {"key", "value", "key_cache", "value_cache"}) {
      spec.inputs.push_back({name, DataType::kFloat, {}, {}});
    }
    spec.inputs.push_back({"slot_mapping", DataType::kInt64, {}, {}});
    for (const char* name : {"key_cache_out", "value_cache_out"}) {
      spec.outputs.push_back({name, DataType::kFloat, {}, {}});
    }
    return spec;
  }

  std::vector<TensorArg> Args() {
    const auto tokens = static_cast<int64_t>(slots.size());
    const std::vector<int64_t> rows = {tokens, kHeads, kHeadSize};
    const std::vector<int64_t> cache = {kBlocks, kBlockSize, kHeads, kHeadSize};
    return {{DataType::kFloat, rows, keys.data()},
            {DataType::kFloat, rows, values.data()},
            {DataType::kFloat, cache, key_cache.data()},
            {DataType::kFloat, cache, value_cache.data()},
            {DataType::kInt64, {tokens}, slots.data()}};
  }

  std::vector<float> keys, values;
  std::vector<int64_t> slots;
  std::vector<float> key_cache = std::vector<float>(kCacheSize, 7.0F);
  std::vector<float> value_cache = std::vector<float>(kCacheSize, 7.0F);
};

const OpDef& InsertOp() { return *OpRegistry::Global().Find("pagefuse", "PagedCacheInsert", 1); }

TEST(NodeKernel, WritesInPlaceWhereMemoryIsTheSame) {
  NodeKernel kernel(InsertOp(), Insert::Spec());
  Insert insert(3);
  FakeHost host;
  host.bound = {{0, insert.key_cache.data()}, {1, insert.value_cache.data()}};
  Must(kernel.Run(insert.Args(), host));
  EXPECT_THAT(host.copies, IsEmpty());
  EXPECT_EQ(insert.key_cache[3 * kRow - 1], 1.0F);
  EXPECT_EQ(insert.key_cache[3 * kRow], 7.0F);
  EXPECT_EQ(insert.value_cache[0], 2.0F);
}

TEST(NodeKernel, CopiesWhereMemoryIsNotTheSameAndSaysSo) {
  NodeKernel kernel(InsertOp(), Insert::Spec());
  Insert insert(1);
  FakeHost host;
  host.bound = {{1, insert.value_cache.data()}};
  ASSERT_TRUE(kernel.Run(insert.Args(), host).ok());
  EXPECT_THAT(host.copies, ElementsAre(StrCat("2 to 0: ", kCacheSize * sizeof(float))));
  EXPECT_EQ(insert.key_cache[0], 7.0F);
  EXPECT_EQ(host.memory(0)[0], 1.0F);
  EXPECT_EQ(host.memory(0)[kRow], 7.0F);
}

TEST(NodeKernel, ChecksValuesBeforeItAsksForMemory) {
  NodeKernel kernel(InsertOp(), Insert::Spec());
  Insert insert(2);
  insert.slots[1] = kBlocks * kBlockSize;
  FakeHost host;
  const absl::Status status = kernel.Run(insert.Args(), host);
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("node \"insert\" (pagefuse.PagedCacheInsert): input 4 \"slot_mapping\""));
  EXPECT_THAT(host.asked(), IsEmpty());
}

TEST(NodeKernel, ChoosesAKernelOnceForCallsOfOneKind) {
  NodeKernel kernel(InsertOp(), Insert::Spec());
  FakeHost host;
  for (const int64_t tokens : {3, 1, 2, 1}) {
    Insert insert(tokens);
    ASSERT_TRUE(kernel.Run(insert.Args(), host).ok());
  }
  EXPECT_THAT(host.kernels, ElementsAre("hwy"));
}

TEST(NodeKernel, RunsOnTwoThreadsAtOnce) {
  NodeKernel kernel(InsertOp(), Insert::Spec());
  constexpr int kRuns = 200;
  const auto run = [&](int64_t tokens) {
    for (int i = 0; i < kRuns; ++i) {
      Insert insert(tokens);
      FakeHost host;
      Must(kernel.Run(insert.Args(), host));
      ASSERT_EQ(host.memory(0)[tokens * kRow - 1], 1.0F);
      ASSERT_EQ(host.memory(0)[tokens * kRow], 7.0F);
    }
  };
  std::thread other(run, 1);
  run(3);
  other.join();
}

TEST(NodeKernel, TakesTheKernelThatIsForced) {
  NodeKernel kernel(InsertOp(), Insert::Spec(), "reference");
  Insert insert(1);
  FakeHost host;
  ASSERT_TRUE(kernel.Run(insert.Args(), host).ok());
  EXPECT_THAT(host.kernels, ElementsAre("reference"));
}

TEST(NodeKernel, RunsTheDecompositionOfAnOpWithoutKernels) {
  OpDef op("acme", "Twice", 1);
  op.Input("x", "T")
      .Output("y", "T")
      .Types("T", {DataType::kFloat})
      .InferShapes([](ShapeContext& c) {
        c.SetOutput(0, c.input_type(0), *c.input_shape(0));
        return absl::OkStatus();
      })
      .Decomposition("Twice (x) => (y) { y = Add (x, x) }");
  OpRegistry ops = OpRegistry::Global();
  ASSERT_TRUE(ops.Add(op).ok());
  OpRegistry::Publish(std::move(ops));
  NodeSpec spec;
  spec.inputs = {{"x", DataType::kFloat, {}, {}}};
  spec.outputs = {{"y", DataType::kFloat, {}, {}}};
  NodeKernel kernel(*OpRegistry::Global().Find("acme", "Twice", 1), spec);
  std::vector<float> x = {1, 2, 3};
  FakeHost host;
  Must(kernel.Run({{DataType::kFloat, {3}, x.data()}}, host));
  EXPECT_THAT(host.kernels, ElementsAre(""));
  EXPECT_THAT(host.memory(0), ElementsAre(2, 4, 6));
}

TEST(NodeKernel, RefusesATypeThatTheHostGaveAnOutput) {
  NodeSpec spec = Insert::Spec();
  spec.outputs[1].dtype = DataType::kFloat16;
  NodeKernel kernel(InsertOp(), spec);
  Insert insert(1);
  FakeHost host;
  const absl::Status status = kernel.Run(insert.Args(), host);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("output 1 \"value_cache_out\": expected float, got float16"));
}

}  // namespace
}  // namespace pagefuse::ort
