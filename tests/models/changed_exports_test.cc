// SPDX-License-Identifier: Apache-2.0
// DeepSeek exports changed in one place: paging leaves them with a reason, or computes what they
// mean.
#include <functional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/models/model_data.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/runtime/paged_model.h"
#include "pagefuse/runtime/session.h"

namespace pagefuse {
namespace {

using ::testing::HasSubstr;

constexpr char kWindows[] =
    "deepseek_v4_A18";  // compressed rows of windows, of which some are chosen
constexpr char kTokens[] = "deepseek_v32_A18";  // tokens, of which some are chosen
constexpr char kPast[] = "deepseek_v32_B18";    // the same with a past

// An export that means something else in one place.
struct Change {
  const char* model;
  const char* name;
  std::function<void(Graph&)> make;
  const char* reason;
};

void PrintTo(const Change& change, std::ostream* out) { *out << change.name; }

Node& NodeNamed(Graph& graph, std::string_view name) {
  for (const auto& node : graph.nodes()) {
    if (node->name == name) return *node;
  }
  ADD_FAILURE() << "no node " << name;
  return *graph.nodes().front();
}

Value* AddBefore(Graph& graph, Node* before, std::string_view op, std::vector<Value*> inputs,
                 DataType type) {
  Value* output = graph.AddValue(graph.UniqueName("changed"), type, std::nullopt);
  graph.AddNode("", op, std::move(inputs), {output}, before);
  return output;
}

// The node's place is taken by another with the same inputs.
void ReplaceOp(Graph& graph, std::string_view name, std::string_view op) {
  Node& old = NodeNamed(graph, name);
  Value* other = AddBefore(graph, &old, op, old.inputs(), old.output(0)->dtype());
  graph.ReplaceAllUses(old.output(0), other);
  graph.EraseNode(&old);
}

template <typename T>
Value* Constant(Graph& graph, std::vector<int64_t> dims, T number) {
  return graph.AddInitializer(graph.UniqueName("changed"), Tensor::Of<T>(dims, {number}));
}

void SetNumber(Graph& graph, std::string_view name, int input, int64_t number) {
  NodeNamed(graph, name).SetInput(input, Constant<int64_t>(graph, {}, number));
}

// Another output needs a value, row by row: only that it has rows of keys can be the reason.
void ReadElsewhere(Graph& graph, std::string_view name) {
  Value* rows = NodeNamed(graph, name).output(0);
  graph.AddOutput(AddBefore(graph, nullptr, "Exp", {rows}, DataType::kFloat));
}

void SetAttribute(Graph& graph, std::string_view name, const char* attribute, int64_t number) {
  NodeNamed(graph, name).SetAttribute(attribute, Attribute{number, "", ""});
}

class ChangedExport : public testing::TestWithParam<Change> {};

const Change kChanges[] = {
    {kWindows, "a_window_is_seen_before_it_is_closed",
     [](Graph& graph) { ReplaceOp(graph, "node_ge_50", "Greater"); },
     "expected windows j with j < (position + 1) / 8"},
    {kWindows, "windows_of_tokens_before_the_last_are_seen",
     [](Graph& graph) { SetNumber(graph, "node_add_4393", 1, 0); }, "closed"},
    {kWindows, "windows_are_counted_by_another_ratio",
     [](Graph& graph) { SetNumber(graph, "node_Div_2971", 1, 4); }, "those that are closed"},
    {kWindows, "the_least_scores_are_chosen",
     [](Graph& graph) { SetAttribute(graph, "node_topk__1", "largest", 0); },
     "all places of the largest scores along the last axis"},
    {kWindows, "chosen_windows_stay_that_are_open",
     [](Graph& graph) { ReplaceOp(graph, "node_ge_42", "Greater"); },
     "chosen windows only where they are closed"},
    {kWindows, "scores_of_open_windows_count",
     [](Graph& graph) { ReplaceOp(graph, "node_ge_41", "Greater"); }, "those that are closed"},
    {kWindows, "rows_are_rotated_by_the_place_behind_their_window",
     [](Graph& graph) {
       Node& reader = NodeNamed(graph, "node_unsqueeze_80");
       Value* ratio = NodeNamed(graph, "node_mul_4791").input(1);
       reader.SetInput(
           0, AddBefore(graph, &reader, "Add", {reader.input(0), ratio}, DataType::kInt64));
     },
     "the place where a window begins"},
    {kWindows, "a_window_begins_one_token_late",
     [](Graph& graph) {
       NodeNamed(graph, "node_slice_178").SetInput(1, Constant<int64_t>(graph, {1}, 1));
     },
     "rows that windows of tokens were compressed to"},
    {kWindows, "the_first_window_overlaps_with_zeros",
     [](Graph& graph) {
       NodeNamed(graph, "node_new_full").SetInput(0, Constant<float>(graph, {}, 0));
     },
     "rows that windows of tokens were compressed to"},
    {kWindows, "the_sink_is_of_the_token",
     [](Graph& graph) {
       Node& join = NodeNamed(graph, "node_cat_2");
       Value* last = Constant<int64_t>(graph, {1}, -1);
       join.SetInput(1,
                     AddBefore(graph, &join, "ReduceMax", {join.input(0), last}, DataType::kFloat));
     },
     "expected a number for each head"},
    {kWindows, "the_mask_has_one_more_term",
     [](Graph& graph) {
       Node& join = NodeNamed(graph, "node_cat_18");
       Value* mask = NodeNamed(graph, "node_add_7075").input(1);
       join.SetInput(0, AddBefore(graph, &join, "Add", {join.input(0), mask}, DataType::kFloat));
     },
     "expected one mask over compressed rows, got 2"},
    {kWindows, "compressed_rows_are_read_elsewhere",
     [](Graph& graph) { ReadElsewhere(graph, "node_squeeze_6"); }, "WindowCompress"},
    {kWindows, "scores_are_chosen_along_the_tokens",
     [](Graph& graph) { SetAttribute(graph, "node_topk__1", "axis", 1); },
     "expected all places of the largest scores along the last axis of node"},
    {kWindows, "the_bias_is_of_the_window",
     [](Graph& graph) {
       Node& add = NodeNamed(graph, "node_add_3870");
       Value* places = NodeNamed(graph, "node_Reshape_993").output(0);
       Value* all = AddBefore(graph, &add, "ConstantOfShape", {places}, DataType::kFloat);
       Value* two = Constant<int64_t>(graph, {1}, 1);
       Value* once = AddBefore(graph, &add, "Unsqueeze", {all, two}, DataType::kFloat);
       Value* twice = AddBefore(graph, &add, "Unsqueeze", {once, two}, DataType::kFloat);
       Value* bias = AddBefore(graph, &add, "CumSum", {twice, Constant<int64_t>(graph, {}, 0)},
                               DataType::kFloat);
       add.SetInput(1, AddBefore(graph, &add, "Add", {add.input(1), bias}, DataType::kFloat));
     },
     "expected rows that windows of tokens were compressed to"},
    {kWindows, "rows_are_rotated_by_the_end_of_their_window",
     [](Graph& graph) {
       Node& reader = NodeNamed(graph, "node_unsqueeze_38");
       reader.SetInput(
           0, AddBefore(graph, &reader, "Add", {reader.input(0), Constant<int64_t>(graph, {}, 3)},
                        DataType::kInt64));
     },
     "expected the place where a window begins, (4)*i6"},
    {kWindows, "scores_of_windows_are_read_elsewhere",
     [](Graph& graph) { ReadElsewhere(graph, "node_sum_125"); },
     "which counts along axis 2, as more than the positions of tokens"},
    {kWindows, "index_keys_of_windows_are_read_elsewhere",
     [](Graph& graph) { ReadElsewhere(graph, "node_squeeze_3"); },
     "which counts along axis 2, as more than the positions of tokens"},
    {kWindows, "keys_of_the_window_are_read_elsewhere",
     [](Graph& graph) { ReadElsewhere(graph, "node_view_40"); },
     "(pagefuse.WindowCompress) is not known to work on each token alone"},
    {kWindows, "one_layer_has_the_choices_of_two",
     [](Graph& graph) {
       Node& join = NodeNamed(graph, "node_cat_26");
       join.SetInput(1, AddBefore(graph, &join, "Add",
                                  {join.input(1), NodeNamed(graph, "node_slice_160").output(0)},
                                  DataType::kFloat));
     },
     "\"scatter_1\" (ScatterElements) is not understood as a mask"},
    {kTokens, "scores_are_chosen_along_the_tokens",
     [](Graph& graph) { SetAttribute(graph, "node_topk__1", "axis", 1); },
     "expected the largest scores along the last axis, got axis 1"},
    {kTokens, "the_least_scores_are_chosen",
     [](Graph& graph) { SetAttribute(graph, "node_topk__1", "largest", 0); },
     "got axis -1 and largest 0"},
    {kTokens, "scores_are_read_elsewhere",
     [](Graph& graph) { ReadElsewhere(graph, "node_squeeze_1"); },
     "it combines rows of different tokens"},
    {kTokens, "rotated_keys_are_of_the_head",
     [](Graph& graph) {
       Node& expand = NodeNamed(graph, "node_copy_1");
       Value* heads = graph.AddInitializer(graph.UniqueName("changed"),
                                           Tensor::Of<float>({1, 4, 1, 1}, {1, 2, 3, 4}));
       Value* scaled = AddBefore(graph, &expand, "Mul", {expand.input(0), heads}, DataType::kFloat);
       graph.ReplaceAllUses(expand.output(0), scaled);
       graph.EraseNode(&expand);
     },
     "the second part of the keys is no expanded head"},
    {kTokens, "the_expansion_is_not_constant",
     [](Graph& graph) {
       Node& expansion = NodeNamed(graph, "node_linear_3");
       Value* mean =
           AddBefore(graph, &expansion, "ReduceMean", {expansion.input(0)}, DataType::kFloat);
       Value* flat = AddBefore(graph, &expansion, "Reshape",
                               {mean, Constant<int64_t>(graph, {1}, 1)}, DataType::kFloat);
       expansion.SetInput(
           1, AddBefore(graph, &expansion, "Add", {expansion.input(1), flat}, DataType::kFloat));
     },
     "keys and values are no product with a constant matrix"},
    {kTokens, "the_mask_has_one_more_term",
     [](Graph& graph) {
       Node& add = NodeNamed(graph, "node_add_689");
       Value* scores = AddBefore(
           graph, &add, "Unsqueeze",
           {NodeNamed(graph, "node_squeeze_1").output(0), Constant<int64_t>(graph, {1}, 1)},
           DataType::kFloat);
       add.SetInput(1, AddBefore(graph, &add, "Add", {add.input(1), scores}, DataType::kFloat));
     },
     "node \"node_matmul_4\" (Attention): mask: \"scatter\" (ScatterElements) is no range of indices"},
    {kPast, "the_past_is_read_elsewhere",
     [](Graph& graph) {
       graph.AddOutput(AddBefore(graph, nullptr, "ReduceMean",
                                 {graph.FindValue("past_key_values.0.key")}, DataType::kFloat));
     },
     "reads \"past_key_values.0.key\", which is an input of no known meaning"},
    {kPast, "the_past_of_index_keys_is_read_elsewhere",
     [](Graph& graph) {
       graph.AddOutput(AddBefore(graph, nullptr, "ReduceMean",
                                 {graph.FindValue("past_key_values.0.indexer_key")},
                                 DataType::kFloat));
     },
     "reads \"past_key_values.0.indexer_key\", which is an input of no known meaning"},
};

INSTANTIATE_TEST_SUITE_P(OnePlace, ChangedExport, testing::ValuesIn(kChanges),
                         [](const auto& info) {
                           return std::string(info.param.model) + "_" + info.param.name;
                         });

TEST_P(ChangedExport, IsNotPaged) {
  Model model = LoadBundled(GetParam().model);
  GetParam().make(*model.graph);
  EXPECT_THAT(ReasonOf(std::move(model)), HasSubstr(GetParam().reason));
}

// Exports that mean something else too, which is as well over a cache.
const Change kLegalChanges[] = {
    {kWindows, "rows_of_the_bias_are_shifted",
     [](Graph& graph) {
       Node& add = NodeNamed(graph, "node_add_3870");
       Value* bias = add.input(1);
       Value* row = graph.AddInitializer(graph.UniqueName("changed"),
                                         Tensor::Of<int64_t>({4}, {1, 2, 3, 0}));
       add.SetInput(1, AddBefore(graph, &add, "Gather", {bias, row}, DataType::kFloat));
     },
     ""},
    {kWindows, "windows_are_those_that_another_layer_chose",
     [](Graph& graph) {
       NodeNamed(graph, "node_unsqueeze_131")
           .SetInput(0, NodeNamed(graph, "node_where_2").output(0));
     },
     ""},
    {kTokens, "keys_are_those_that_another_layer_chose",
     [](Graph& graph) {
       NodeNamed(graph, "node_scatter_1").SetInput(1, NodeNamed(graph, "node_scatter").input(1));
     },
     ""},
    {kTokens, "expanded_keys_are_read_row_by_row_too",
     [](Graph& graph) {
       Node& output = NodeNamed(graph, "node_linear_7");
       Value* begin = Constant<int64_t>(graph, {1}, 0);
       Value* end = Constant<int64_t>(graph, {1}, 64);
       Value* axis = Constant<int64_t>(graph, {1}, 3);
       Value* expanded = NodeNamed(graph, "node_linear_3").output(0);
       Value* some =
           AddBefore(graph, &output, "Slice", {expanded, begin, end, axis}, DataType::kFloat);
       Value* head = Constant<int64_t>(graph, {1}, 1);
       some = AddBefore(graph, &output, "Squeeze", {some, head}, DataType::kFloat);
       output.SetInput(0,
                       AddBefore(graph, &output, "Add", {output.input(0), some}, DataType::kFloat));
     },
     ""},
};

class LegalChange : public testing::TestWithParam<Change> {};

INSTANTIATE_TEST_SUITE_P(OnePlace, LegalChange, testing::ValuesIn(kLegalChanges),
                         [](const auto& info) {
                           return std::string(info.param.model) + "_" + info.param.name;
                         });

Tensor Unfused(Model model, const DataSet& data) {
  SessionOptions options;
  options.optimise = false;
  const auto session = Session::Create(std::move(model), options);
  EXPECT_TRUE(session.ok()) << session.status();
  auto outputs = (*session)->Run(data.inputs, {"logits"});
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  return std::move((*outputs)[0]);
}

TEST_P(LegalChange, GivesTheLogitsOfTheUnfusedGraph) {
  Model model = LoadBundled(GetParam().model);
  GetParam().make(*model.graph);
  const DataSet data = LoadDataSet(GetParam().model, 0);
  const Tensor expected = Unfused(model.Clone(), data);
  EXPECT_GT(MaxDifference(expected.values<float>(), data.outputs.at("logits").values<float>()),
            1e-2)
      << "nothing was changed";
  EXPECT_EQ(ReasonOf(model.Clone()), "it is paged");
  auto paged = PagedModel::Create(std::move(model), {.all_logits = true});
  ASSERT_TRUE(paged.ok()) << paged.status();
  const auto ids = data.inputs.at("input_ids").values<int64_t>();
  const auto length = static_cast<int64_t>(ids.size());
  ASSERT_TRUE((*paged)->Reserve({length}, length).ok());
  const SequenceId sequence = (*paged)->cache().AddSequence();
  const auto logits = (*paged)->Step({{.sequence = sequence, .ids = {ids.begin(), ids.end()}}});
  ASSERT_TRUE(logits.ok()) << logits.status();
  EXPECT_LE(MaxDifference(logits->values<float>(), expected.values<float>()), 1e-4);
}

}  // namespace
}  // namespace pagefuse
