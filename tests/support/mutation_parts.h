// SPDX-License-Identifier: Apache-2.0
// What mutations of graphs share: reading constants and numbers of dims, and putting nodes in.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph_mutations.h"

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/ir/tensor/tensor.h"

namespace pagefuse::testing {

bool IsOneOf(const Node& node, std::initializer_list<std::string_view> ops);
bool IsFloat(const Value* value);          // float, double, float16, bfloat16
bool IsSignedInteger(const Value* value);  // int32, int64
int RankOf(const Value* value);            // -1 if unknown
// The constant behind a value: an initialiser or a Constant node.
std::optional<Tensor> ConstantTensor(const Value* value);
std::optional<std::vector<int64_t>> ConstantInts(const Value* value);
// The only element of a constant of a float or integer type.
std::optional<double> ConstantNumber(const Value* value);
// Of the type and dims of `like`, all elements the number. Undefined for other types than floats
// and int32, int64.
Tensor FilledLike(const Tensor& like, double number);
// The dims as Reshape takes them: -1 for one that is no number; nullopt if more are none.
std::optional<std::vector<int64_t>> ReshapeTarget(const Value* value);
// The number of a dim counted from the front, nullopt if it is none.
std::optional<int64_t> DimAt(const Value* value, int64_t axis);

// Puts nodes before one that is to be replaced.
class Rewriter {
 public:
  explicit Rewriter(Node& node) : node_(node), graph_(*node.graph()) {}

  Value* Add(std::string_view op, std::vector<Value*> inputs);
  Value* AddInt(std::string_view op, std::vector<Value*> inputs, std::string_view attribute,
                int64_t value);
  Value* AddInts(std::string_view op, std::vector<Value*> inputs, std::string_view attribute,
                 std::vector<int64_t> values);
  Value* Cast(Value* value, DataType type);
  std::vector<Value*> Split(Value* value, int64_t axis, Value* sizes, int parts);
  // The largest along an axis, which stays with length 1.
  Value* TopOne(Value* value, int64_t axis);
  Value* Constant(Tensor tensor);
  Value* Ints(std::vector<int64_t> values);
  // Lets the readers of an output read `value`.
  void Replace(int output, Value* value);
  // Erases the node, whose outputs are replaced. True, as rewriting is then done.
  bool Done();
  // Replaces the node's only output and erases it.
  bool ReplaceWith(Value* value);

 private:
  Node& node_;
  Graph& graph_;
};

// The op of the node in another name, with its attributes.
bool Rename(Node& node, std::string_view op);

// The mutations, by file.
std::span<const Mutation> ViewVariants();
std::span<const Mutation> ArithmeticVariants();
std::span<const Mutation> IndexVariants();
std::span<const Mutation> SumVariants();
std::span<const Mutation> NumberVariants();
std::span<const Mutation> PlaceVariants();
std::span<const Mutation> WriteVariants();

}  // namespace pagefuse::testing
