// SPDX-License-Identifier: Apache-2.0
// A decoder's data through the paged path: what is compared, and that no data whatever is more than
// refused.
#include "tools/check/paged_case.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "must.h"
#include "paths.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/ops/kernels/numeric/convert.h"

namespace pagefuse {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A bundled decoder with a past, and one of its data sets alone.
TestCase CaseOf(const std::string& model, int data_set) {
  TestCase test_case = Must(LoadTestCase(TestDataPath(StrCat("models/", model))));
  test_case.data_sets = {test_case.data_sets[data_set]};
  return test_case;
}

TestCase WithPast() { return CaseOf("gemma3_B18", 2); }
TestCase WithPadding() { return CaseOf("gemma3_A18", 1); }

// The tensor's bytes under another type or other dims, as many of them as there are or zeros.
Tensor As(const Tensor& tensor, DataType type, const std::vector<int64_t>& dims) {
  Tensor result = *Tensor::Allocate(type, dims);
  std::memcpy(result.mutable_data(), tensor.data(),
              std::min(result.byte_size(), tensor.byte_size()));
  return result;
}

using Change = std::function<Tensor(const Tensor&)>;

// What a case may hold instead of a tensor.
std::vector<Change> Changes() {
  std::vector<Change> changes = {[](const Tensor&) { return Tensor(); }};
  for (const DataType type : {DataType::kBool, DataType::kInt8, DataType::kInt32, DataType::kInt64,
                              DataType::kFloat16, DataType::kFloat, DataType::kDouble}) {
    changes.push_back([type](const Tensor& tensor) {
      return type == tensor.dtype() ? Tensor() : As(tensor, type, tensor.dims());
    });
  }
  changes.push_back([](const Tensor&) { return Tensor::Strings({1}, {"text"}); });
  const auto reshape = [&changes](std::function<void(std::vector<int64_t>&)> edit) {
    changes.push_back([edit](const Tensor& tensor) {
      std::vector<int64_t> dims = tensor.dims();
      edit(dims);
      return As(tensor, tensor.dtype(), dims);
    });
  };
  reshape([](auto& dims) { dims.clear(); });
  reshape([](auto& dims) { dims.assign(1, 1); });
  reshape([](auto& dims) { dims.insert(dims.begin(), 1); });
  reshape([](auto& dims) { dims.push_back(2); });
  reshape([](auto& dims) { dims.front() += 1; });
  reshape([](auto& dims) { dims.front() = 0; });
  reshape([](auto& dims) { dims.back() += 1; });
  reshape([](auto& dims) { dims.back() = 0; });
  reshape([](auto& dims) { dims[1] = dims[1] / 2; });
  reshape([](auto& dims) { dims[1] = dims[1] * 2; });
  return changes;
}

absl::Status Check(TestCase test_case, std::vector<std::string>* notes = nullptr) {
  return CheckPagedCase(std::move(test_case), {}, notes);
}

TEST(PagedCase, BundledDecodersAgree) {
  EXPECT_TRUE(Check(WithPast()).ok()) << Check(WithPast());
  std::vector<std::string> notes;
  EXPECT_TRUE(Check(WithPadding(), &notes).ok());
  EXPECT_THAT(notes,
              ElementsAre("test_data_set_1: 11 tokens are padding, their rows were not compared"));
}

TEST(PagedCase, LeavesOutPaddingThatWindowsCount) {
  std::vector<std::string> notes;
  EXPECT_TRUE(Check(CaseOf("deepseek_v4_A18", 0), &notes).ok());
  EXPECT_TRUE(notes.empty());
  EXPECT_TRUE(Check(CaseOf("deepseek_v4_A18", 1), &notes).ok());
  EXPECT_THAT(notes, ElementsAre("test_data_set_1: not compared, the export's windows count "
                                 "padding on the left"));
}

TEST(PagedCase, SeesALogitThatIsOff) {
  TestCase test_case = WithPast();
  Tensor& logits = test_case.data_sets[0].outputs[0];
  logits = *logits.Clone();
  logits.mutable_values<float>()[3] += 0.01f;
  EXPECT_THAT(std::string(Check(std::move(test_case)).message()),
              HasSubstr("logits of kept tokens: at [0, 3]: expected"));
}

TEST(PagedCase, ComparesLastRowsWhereThereAreNoOthers) {
  TestCase test_case = WithPadding();
  Tensor& logits = test_case.data_sets[0].outputs[0];
  const std::vector<int64_t> dims = logits.dims();
  Tensor last = *Tensor::Allocate(DataType::kFloat, {dims[0], dims[2]});
  for (int64_t b = 0; b < dims[0]; ++b) {
    const auto row = logits.values<float>().subspan(((b + 1) * dims[1] - 1) * dims[2], dims[2]);
    std::copy(row.begin(), row.end(), last.mutable_values<float>().begin() + b * dims[2]);
  }
  logits = last;
  EXPECT_TRUE(Check(test_case).ok()) << Check(test_case);
  logits = *last.Clone();
  logits.mutable_values<float>()[dims[2]] += 0.01f;
  EXPECT_FALSE(Check(test_case).ok());
}

// The same decoder with logits that are rounded to float16 at the end.
TestCase WithHalfLogits() {
  TestCase test_case = WithPast();
  Graph& graph = *test_case.model.graph;
  Value* wide = graph.outputs()[0];
  graph.Rename(wide, "wide_logits");
  Value* logits = graph.AddValue("logits", DataType::kFloat16, wide->shape());
  graph.AddNode("", "Cast", {wide}, {logits})
      ->SetAttribute("to", {.value = int64_t{10}, .doc_string = {}, .unknown_fields = {}});
  graph.ReplaceOutput(0, logits);
  Tensor& expected = test_case.data_sets[0].outputs[0];
  Tensor half = *Tensor::Allocate(DataType::kFloat16, expected.dims());
  EXPECT_TRUE(EncodeFromFloat(DataType::kFloat16, expected.values<float>().data(), expected.size(),
                              half.mutable_data())
                  .ok());
  expected = half;
  return test_case;
}

TEST(PagedCase, ReadsHalfLogitsByTheirType) {
  EXPECT_TRUE(Check(WithHalfLogits()).ok()) << Check(WithHalfLogits());
  TestCase test_case = WithHalfLogits();
  test_case.data_sets[0].outputs[0].mutable_values<uint16_t>()[3] += 8;
  EXPECT_THAT(std::string(Check(std::move(test_case)).message()), HasSubstr("at [0, 3]: expected"));
}

// Every feed, with a past one of each kind, and the logits: whatever stands in their place is
// refused with a reason, and never read beyond its end.
TEST(PagedCase, RefusesDataOfAnyOtherTypeOrShape) {
  for (const Change& change : Changes()) {
    for (const std::string name : {"input_ids", "attention_mask", "position_ids",
                                   "past_key_values.0.key", "past_key_values.5.value"}) {
      TestCase test_case = WithPast();
      auto& feeds = test_case.data_sets[0].feeds;
      ASSERT_TRUE(feeds.contains(name)) << name;
      Tensor changed = change(feeds[name]);
      SCOPED_TRACE(
          StrCat(name, " as ", DataTypeName(changed.dtype()), DimsToString(changed.dims())));
      feeds[name] = changed;
      if (!changed.defined()) feeds.erase(name);
      // Positions may be left out: the paged path counts them itself.
      if (!changed.defined() && name == "position_ids") continue;
      const absl::Status status = Check(std::move(test_case));
      EXPECT_FALSE(status.ok());
      EXPECT_NE(status.message(), "");
    }
    TestCase test_case = WithPast();
    Tensor& logits = test_case.data_sets[0].outputs[0];
    logits = change(logits);
    SCOPED_TRACE(StrCat("logits as ", DataTypeName(logits.dtype()), DimsToString(logits.dims())));
    const absl::Status status = Check(std::move(test_case));
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
  }
}

TEST(PagedCase, RefusesTokensAndMasksThatNoSequenceHas) {
  TestCase test_case = WithPast();
  auto& feeds = test_case.data_sets[0].feeds;
  const Tensor ids = feeds["input_ids"], mask = feeds["attention_mask"];
  feeds["input_ids"] = Tensor::Of<int64_t>(ids.dims(), std::vector<int64_t>(ids.size(), 1 << 20));
  EXPECT_FALSE(Check(test_case).ok());
  feeds["input_ids"] = Tensor::Of<int64_t>(ids.dims(), std::vector<int64_t>(ids.size(), -9));
  EXPECT_FALSE(Check(test_case).ok());
  feeds["input_ids"] = ids;
  feeds["attention_mask"] = Tensor::Of<int64_t>(mask.dims(), std::vector<int64_t>(mask.size(), 0));
  EXPECT_THAT(std::string(Check(test_case).message()), HasSubstr("all tokens are padding"));
  feeds["attention_mask"] = mask;
  const Tensor positions = feeds["position_ids"];
  feeds["position_ids"] =
      Tensor::Of<int64_t>(positions.dims(), std::vector<int64_t>(positions.size(), 7));
  EXPECT_THAT(std::string(Check(test_case).message()), HasSubstr("\"position_ids\" at [0, 0]"));
}

TEST(PagedCase, PutsPastsOfLatentRowsBesideEachOther) {
  for (int set = 0; set < 6; ++set) {
    EXPECT_TRUE(Check(CaseOf("deepseek_v3_B18", set)).ok()) << "data set " << set;
  }
  TestCase without = CaseOf("deepseek_v3_B18", 2);
  without.data_sets[0].feeds.erase("past_key_values.1.value");
  EXPECT_FALSE(Check(std::move(without)).ok());
}

// The case with the keys of its first layer given, and given back, with channels first.
TestCase WithChannelsFirst() {
  TestCase test_case = WithPast();
  Graph& graph = *test_case.model.graph;
  Value* past = graph.FindValue("past_key_values.0.key");
  Value* present = graph.FindValue("present.0.key");
  const Shape shape = *past->shape();
  Value* turned =
      graph.AddInput("turned", past->dtype(), Shape{shape[3], shape[0], shape[1], shape[2]});
  Node* first = graph.nodes().front().get();
  Value* keys = graph.AddValue("keys", past->dtype(), shape);
  Node* back = graph.AddNode("", "Transpose", {turned}, {keys}, first);
  back->SetAttribute("perm", {.value = std::vector<int64_t>{1, 2, 3, 0}});
  graph.ReplaceAllUses(past, keys);
  graph.RemoveInput(
      static_cast<int>(std::ranges::find(graph.inputs(), past) - graph.inputs().begin()));
  const auto output = std::ranges::find(graph.outputs(), present) - graph.outputs().begin();
  Value* given = graph.AddValue("given", past->dtype());
  Node* turn = graph.AddNode("", "Transpose", {present}, {given}, nullptr);
  turn->SetAttribute("perm", {.value = std::vector<int64_t>{3, 0, 1, 2}});
  graph.ReplaceOutput(static_cast<int>(output), given);
  auto& feeds = test_case.data_sets[0].feeds;
  const Tensor rows = feeds.extract("past_key_values.0.key").mapped();
  const int64_t channels = rows.dims()[3], count = rows.size() / channels;
  Tensor columns =
      *Tensor::Allocate(rows.dtype(), {channels, rows.dims()[0], rows.dims()[1], rows.dims()[2]});
  auto* to = static_cast<float*>(columns.mutable_data());
  for (int64_t i = 0; i < rows.size(); ++i) {
    to[i % channels * count + i / channels] = rows.values<float>()[i];
  }
  feeds["turned"] = std::move(columns);
  return test_case;
}

TEST(PagedCase, PutsPastsOfOtherLayoutsIntoTheCache) {
  EXPECT_TRUE(Check(WithChannelsFirst()).ok()) << Check(WithChannelsFirst());
  TestCase changed = WithChannelsFirst();
  Tensor& past = changed.data_sets[0].feeds["turned"];
  for (int64_t i = 0; i < past.size(); i += 3) static_cast<float*>(past.mutable_data())[i] += 1;
  EXPECT_FALSE(Check(std::move(changed)).ok());
}

// A step of two tokens behind three, with keys of four channels and values of two.
TestCase WithNarrowValues() {
  TestCase test_case;
  test_case.model = Must(ParseModel(R"(<ir_version: 10, opset_import: ["" : 24]>
g (int64[B, S] input_ids, int64[B, T] attention_mask, int64[B, S] position_ids,
   float[B, 2, P, 4] "past_key_values.0.key", float[B, 2, P, 2] "past_key_values.0.value")
  => (float[B, S, 4] logits, float[B, 2, N, 4] "present.0.key", float[B, 2, N, 2] "present.0.value")
<int64[4] split = {0, 0, 2, 4}, int64[3] join = {0, 0, 4}, int64[1] zero = {0}, int64[1] two = {2},
 int64[1] three = {3}, int64[2] heads = {1, 2},
 float[2, 8] table = {1, -1, 2, 0, 1, 3, -2, 1, 0, 2, -1, 1, -3, 1, 2, 0}> {
  x = Gather (table, input_ids)
  apart = Reshape (x, split)
  q = Transpose <perm = [0, 2, 1, 3]> (apart)
  v = Slice (q, zero, two, three)
  shown = Cast <to = 9> (attention_mask)
  mask = Unsqueeze (shown, heads)
  y, "present.0.key", "present.0.value" = Attention <is_causal = 1, scale = 0.5>
    (q, q, v, mask, "past_key_values.0.key", "past_key_values.0.value")
  rows = Transpose <perm = [0, 2, 1, 3]> (y)
  logits = Reshape (rows, join)
})"));
  const auto rows = [](int64_t channels) {
    Tensor tensor = *Tensor::Allocate(DataType::kFloat, {1, 2, 3, channels});
    float next = -1;
    for (float& number : tensor.mutable_values<float>()) number = next += 0.25f;
    return tensor;
  };
  test_case.data_sets.resize(1);
  auto& [name, feeds, outputs] = test_case.data_sets[0];
  feeds["input_ids"] = Tensor::Of<int64_t>({1, 2}, {1, 0});
  feeds["attention_mask"] = Tensor::Of<int64_t>({1, 5}, {1, 1, 1, 1, 1});
  feeds["position_ids"] = Tensor::Of<int64_t>({1, 2}, {3, 4});
  feeds["past_key_values.0.key"] = rows(4);
  feeds["past_key_values.0.value"] = rows(2);
  outputs = Must(EvaluateModel(test_case.model, feeds));
  return test_case;
}

TEST(PagedCase, PutsPastsBeforeZerosWhereRowsAreNarrower) {
  EXPECT_TRUE(Check(WithNarrowValues()).ok()) << Check(WithNarrowValues());
  TestCase changed = WithNarrowValues();
  changed.data_sets[0].feeds["past_key_values.0.value"].mutable_values<float>()[5] += 1;
  EXPECT_FALSE(Check(std::move(changed)).ok());
}

TEST(PagedCase, RunsTheTokensOfAnExpandedPastAgain) {
  TestCase test_case = Must(LoadTestCase(TestDataPath("models/deepseek_v32_B18")));
  ASSERT_EQ(test_case.data_sets.size(), 6u);
  EXPECT_TRUE(Check(test_case).ok()) << Check(test_case);
  // A step alone, or one whose past no other gave back, says nothing of the tokens behind it.
  test_case.data_sets.erase(test_case.data_sets.begin());
  EXPECT_THAT(Check(std::move(test_case)).ToString(),
              HasSubstr("test_data_set_2: input \"past_key_values.0.key\": expected "
                        "float[1, 1, 40, 24], got float[1, 4, 40, 24]"));
}

TEST(PagedCase, RefusesGraphsThatAreNotPaged) {
  // Every token's row depends on all others.
  TestCase mixed = WithPast();
  Graph& mixing = *mixed.model.graph;
  Value* rows = mixing.outputs()[0];
  mixing.Rename(rows, "rows");
  std::vector<Value*> outputs = mixing.outputs();
  while (!mixing.outputs().empty()) mixing.RemoveOutput(0);
  Value* logits = mixing.AddValue("logits", rows->dtype(), rows->shape());
  Node* softmax = mixing.AddNode("", "Softmax", {rows}, {logits});
  softmax->SetAttribute("axis", {.value = int64_t{1}, .doc_string = {}, .unknown_fields = {}});
  outputs[0] = logits;
  for (Value* output : outputs) mixing.AddOutput(output);
  EXPECT_THAT(Check(std::move(mixed)).ToString(), HasSubstr("which runs over tokens"));
  TestCase test_case = WithPast();
  Graph& graph = *test_case.model.graph;
  graph.Rename(graph.outputs()[0], "scores");
  EXPECT_THAT(Check(std::move(test_case)).ToString(), HasSubstr("no output \"logits\""));
}

}  // namespace
}  // namespace pagefuse
