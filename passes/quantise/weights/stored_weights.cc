// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/quantise/weights/stored_weights.h"

#include <string>
#include <string_view>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/status_place.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/tensor/resident_pages.h"
#include "pagefuse/ops/kernels/linalg/packed_bf16.h"
#include "pagefuse/passes/edit/graph_builder.h"

namespace pagefuse {
namespace {

constexpr char kOurs[] = "pagefuse";
constexpr char kMicrosoft[] = "com.microsoft";

// Rows [N, K] of bfloat16, a stack [E, N, K].
absl::StatusOr<Tensor> RoundMatrix(const WeightMatrix& matrix) {
  const Tensor& tensor = *matrix.tensor;
  std::vector<int64_t> dims = {matrix.n(), matrix.k()};
  if (matrix.is_stack()) dims.insert(dims.begin(), matrix.count());
  PF_ASSIGN_OR_RETURN(Tensor rows, Tensor::Allocate(DataType::kBfloat16, dims));
  const auto* from = static_cast<const float*>(tensor.data());
  auto* to = static_cast<uint16_t*>(rows.mutable_data());
  const int64_t size = matrix.n() * matrix.k();
  for (int64_t i = 0; i < matrix.count(); ++i) {
    const WeightView view{from + i * size, matrix.k(), matrix.n(), matrix.columns_sum};
    RoundToRows(view, to + i * size, [&tensor](const float* begin, int64_t count) {
      ReleasePages(*tensor.buffer(), begin, static_cast<size_t>(count) * sizeof(float));
    });
  }
  return rows;
}

// Gives the node what that which it takes the place of has.
void TakeOver(Node& made, const Node& old) {
  made.metadata = old.metadata;
  made.output(0)->set_dtype(old.output(0)->dtype());
  if (old.output(0)->shape()) made.output(0)->set_shape(*old.output(0)->shape());
}

// Of rows of codes: those of the table and of a product are the same memory.
Value* TableOf(Graph& graph, const WeightMatrix& matrix, Value* codes, int bits) {
  auto rows = codes->initializer()->Reshaped({matrix.n(), matrix.k() * bits / 8});
  return graph.AddInitializer(graph.UniqueName(codes->name() + ".rows"), *std::move(rows));
}

}  // namespace

absl::StatusOr<StoredWeights::Parts> StoredWeights::Store(const WeightUse& weight) {
  const std::string& name = weight.value->name();
  const auto add = [&](std::string_view suffix, Tensor tensor) {
    return graph_.AddInitializer(graph_.UniqueName(StrCat(name, ".", suffix)), std::move(tensor));
  };
  if (format_.layout == WeightLayout::kRows) {
    PF_ASSIGN_OR_RETURN(Tensor rows, RoundMatrix(weight.matrix));
    return Parts{add(format_.name, std::move(rows))};
  }
  absl::StatusOr<WeightCodes> made = QuantiseMatrix(weight.matrix, format_.bits);
  PF_RETURN_IF_ERROR(AtPlace(StrCat("weight \"", name, "\""), made.status()));
  Value* codes = add(format_.name, std::move(made->codes));
  return Parts{codes, add("scales", std::move(made->scales))};
}

absl::StatusOr<StoredWeights::Parts> StoredWeights::Of(const WeightUse& weight) {
  const WeightMatrix& matrix = weight.matrix;
  Stored& stored = stored_[{matrix.tensor->data(), matrix.tensor->dims(), matrix.columns_sum}];
  if (stored.parts.empty()) {
    stored.matrix = *matrix.tensor;
    PF_ASSIGN_OR_RETURN(stored.parts, Store(weight));
  }
  return stored.parts;
}

Attributes StoredWeights::CodeAttributes() const {
  constexpr int64_t kInt8Activations = 4;
  return {
      {"bits", format_.bits}, {"block_size", format_.block}, {"accuracy_level", kInt8Activations}};
}

Node* StoredWeights::PutTable(const WeightMatch& use, const Parts& parts) {
  Node& old = *use.node;
  GraphBuilder builder(graph_, &old, old.output(0)->name());
  if (format_.layout == WeightLayout::kCodes) {
    Value* table = TableOf(graph_, use.weights[0].matrix, parts[0], format_.bits);
    return builder.AddNode(kMicrosoft, "GatherBlockQuantized", {table, old.input(1), parts[1]}, 1,
                           {{"gather_axis", 0},
                            {"quantize_axis", 1},
                            {"block_size", format_.block},
                            {"bits", format_.bits}});
  }
  Node* rows = builder.AddNode("", "Gather", {parts[0], old.input(1)}, 1, {{"axis", 0}});
  TakeOver(*rows, old);
  rows->output(0)->set_dtype(DataType::kBfloat16);
  return builder.Cast(rows->output(0), DataType::kFloat)->producer();
}

Node* StoredWeights::PutProduct(const WeightMatch& use, const Parts& parts) {
  const WeightMatrix& matrix = use.weights[0].matrix;
  Node& old = *use.node;
  GraphBuilder builder(graph_, &old, old.output(0)->name());
  std::vector<Value*> inputs = {old.input(0)};
  inputs.insert(inputs.end(), parts.begin(), parts.end());
  if (format_.layout == WeightLayout::kRows) {
    if (use.bias != nullptr) inputs.push_back(use.bias);
    return builder.AddNode(kOurs, "Linear", std::move(inputs), 1);
  }
  if (use.bias != nullptr) inputs.insert(inputs.end(), {nullptr, nullptr, use.bias});
  Node* made = builder.AddNode(kMicrosoft, "MatMulNBits", std::move(inputs), 1,
                               {{"K", matrix.k()}, {"N", matrix.n()}});
  CodeAttributes().SetOn(*made);
  return made;
}

Node* StoredWeights::PutFormat(const WeightMatch& use, const std::vector<Parts>& weights) {
  Node& old = *use.node;
  GraphBuilder builder(graph_, &old, old.output(0)->name());
  std::vector<Value*> inputs = {old.input(0)};
  if (use.is_grouped) inputs.push_back(old.input(1));
  for (size_t part = 0; part < weights[0].size(); ++part) {
    for (const Parts& weight : weights) inputs.push_back(weight[part]);
  }
  Node* made = builder.AddNode(kOurs, old.op_type(), std::move(inputs), 1);
  for (std::string_view name : {"repeat", "activation", "limit"}) {
    if (old.attribute(name)) made->SetAttribute(name, *old.attribute(name));
  }
  const bool rows = format_.layout == WeightLayout::kRows;
  (rows ? Attributes{{"transB", 1}} : CodeAttributes()).SetOn(*made);
  return made;
}

absl::StatusOr<Node*> StoredWeights::Put(const WeightMatch& use) {
  std::vector<Parts> weights;
  for (const WeightUse& weight : use.weights) {
    PF_ASSIGN_OR_RETURN(weights.emplace_back(), Of(weight));
  }
  const bool keeps_op = use.is_gated() || use.is_grouped;
  Node* made = use.is_table ? PutTable(use, weights[0])
               : keeps_op   ? PutFormat(use, weights)
                            : PutProduct(use, weights[0]);
  TakeOver(*made, *use.node);
  made->name = use.node->name;
  return made;
}

}  // namespace pagefuse
