// SPDX-License-Identifier: Apache-2.0
// What an op's shape inference reads of a node, and where it puts its result.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "pagefuse/ir/graph/graph.h"

namespace pagefuse {

struct DeclaredSizes;
class OpDef;

// One inference function serves two callers: passes, with symbolic shapes and few known contents;
// and the executor, with numbers and the contents of every input, so that data-dependent shapes
// (Range, NonZero, Reshape) are answered there.
class ShapeContext {
 public:
  struct Known {
    DataType dtype = DataType::kUndefined;
    std::optional<Shape> shape;  // nullopt: unknown rank
    std::optional<std::vector<Dim>>
        value;  // contents of an integer tensor of rank 0 or 1, as far as known symbolically
    const Tensor* tensor = nullptr;  // contents, where they are known as numbers
  };

  // `inputs` has one entry an input, default-constructed where the input is omitted.
  ShapeContext(const Node& node, int64_t opset, std::vector<Known> inputs);

  const Node& node() const { return node_; }
  int64_t opset() const { return opset_; }  // version of the node's domain
  int num_inputs() const { return node_.num_inputs(); }
  int num_outputs() const { return node_.num_outputs(); }
  bool has_input(int i) const { return node_.input(i) != nullptr; }
  bool has_output(int i) const { return node_.output(i) != nullptr; }
  DataType input_type(int i) const;
  // Null if the rank is unknown (or the input omitted).
  const Shape* input_shape(int i) const;
  // Integer contents as dims (from a constant tensor too); nullopt if unknown.
  std::optional<std::vector<Dim>> input_value(int i) const;
  // The contents, if known as numbers; the executor knows all.
  const Tensor* input_tensor(int i) const;
  // Integer contents if all are known as numbers.
  std::optional<std::vector<int64_t>> input_ints(int i) const;
  // Contents of which nothing comes but contents of outputs (SetOutputValue), which a run has from the
  // kernel: that they were read says nothing of types and shapes.
  std::optional<std::vector<Dim>> carried_value(int i) const;
  const Tensor* carried_tensor(int i) const;

  // What a name of the op's declared shapes stands for, as far as is known.
  const Dim& size(std::string_view name) const;

  void SetOutput(int i, DataType dtype, std::optional<Shape> shape);
  void SetOutputValue(int i,
                      std::vector<Dim> value);  // contents of an integer output of rank 0 or 1
  // A symbol that no other call for another node returns, for a dim that nothing is known of. It is
  // named after the node's first output, so that inferring twice gives the same.
  Dim FreshDim();
  // What such names start with, after "u__", where value names alone are not unique (subgraphs,
  // function bodies).
  void set_scope(std::string scope) { scope_ = std::move(scope); }
  static constexpr std::string_view kFreshPrefix = "u__";
  // Such a symbol for what another scope calls `symbol`.
  static Dim FreshName(std::string_view scope, std::string_view symbol);

  // InvalidArgument with the node's description in front: `node "x" (MatMul): input 1 "b": <what>`,
  // where "b" is the op's name for the input.
  absl::Status Error(std::string_view what) const;
  absl::Status InputError(int i, std::string_view what) const;
  absl::Status OutputError(int i, std::string_view what) const;
  absl::Status AttributeError(std::string_view attribute, std::string_view what) const;

  const std::vector<Known>& outputs() const { return outputs_; }

 private:
  friend class OpDef;
  const Node& node_;
  const OpDef* op_ = nullptr;  // while its inference runs, as below
  const DeclaredSizes* sizes_ = nullptr;
  std::string scope_;
  int fresh_count_ = 0;
  int64_t opset_;
  std::vector<Known> inputs_;
  std::vector<Known> outputs_;
};

// numpy's broadcast of two shapes; a dim that is 1 gives way, equal dims stay, a number wins over a
// symbol (which must then be it or 1), two different symbols give a fresh dim. InvalidArgument if
// two numbers disagree.
absl::StatusOr<Shape> BroadcastShapes(ShapeContext& context, const Shape& a, const Shape& b);

}  // namespace pagefuse
