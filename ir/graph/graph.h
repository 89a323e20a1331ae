// SPDX-License-Identifier: Apache-2.0
// The graph in memory: nodes, values, use lists, subgraphs, and the few mutations that passes need.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/base/data_type.h"
#include "pagefuse/ir/tensor/shape.h"
#include "pagefuse/ir/tensor/tensor.h"

namespace pagefuse {

class Graph;
class Node;
class Value;

// Ordered key/value pairs, as ONNX metadata_props.
using Metadata = std::vector<std::pair<std::string, std::string>>;
std::optional<std::string_view> FindMetadata(const Metadata& metadata, std::string_view key);
void SetMetadata(Metadata& metadata, std::string_view key, std::string value);

// An attribute that refers to an attribute of the enclosing function (`@name` in text).
struct AttributeRef {
  std::string name;
  int32_t onnx_type = 0;  // AttributeProto.AttributeType
  bool operator==(const AttributeRef&) const = default;
};

// An attribute of a kind that pagefuse keeps but does not read (type protos, sparse tensors): its
// serialised AttributeProto.
struct OpaqueAttribute {
  std::string proto;
  bool operator==(const OpaqueAttribute&) const = default;
};

using AnyAttributeValue =
    std::variant<float, int64_t, std::string, Tensor, std::shared_ptr<Graph>, std::vector<float>,
                 std::vector<int64_t>, std::vector<std::string>, std::vector<Tensor>,
                 std::vector<std::shared_ptr<Graph>>, AttributeRef, OpaqueAttribute>;

// The variant, copied and destroyed in one place rather than in every source that has a node.
struct AttributeValue : AnyAttributeValue {
  using AnyAttributeValue::AnyAttributeValue;
  AttributeValue();
  AttributeValue(const AttributeValue&);
  AttributeValue(AttributeValue&&) noexcept;
  AttributeValue& operator=(const AttributeValue&);
  AttributeValue& operator=(AttributeValue&&) noexcept;
  ~AttributeValue();
};

struct Attribute {
  using Graphs = std::vector<std::shared_ptr<Graph>>;
  AttributeValue value;
  std::string doc_string = {};
  std::string unknown_fields = {};  // serialised protobuf fields newer than the importer's schema
  // For each tensor the rest of its serialised TensorProto (name, doc string, metadata); shorter
  // lists end in empty ones.
  std::vector<std::string> tensor_fields = {};
};

// One reader of a value: input `index` of `node`.
struct Use {
  Node* node;
  int index;
  bool operator==(const Use&) const = default;
};

// An edge of the graph. Exactly one of: output of a node, graph input, initialiser (an initialiser
// may be a graph input too). Owned by its graph; nodes of subgraphs may read values of the
// enclosing graphs.
class Value {
 public:
  const std::string& name() const { return name_; }
  Graph* graph() const { return graph_; }
  DataType dtype() const { return dtype_; }
  void set_dtype(DataType dtype) { dtype_ = dtype; }
  // Nullopt: the rank is unknown.
  const std::optional<Shape>& shape() const { return shape_; }
  void set_shape(std::optional<Shape> shape) { shape_ = std::move(shape); }
  // The node that computes it, null for graph inputs and initialisers.
  Node* producer() const { return producer_; }
  int producer_index() const { return producer_index_; }
  // In no particular order, the same from run to run.
  const std::vector<Use>& uses() const { return uses_; }
  bool is_input() const { return is_input_; }
  bool is_output() const { return output_count_ > 0; }
  // The constant, if this is an initialiser. A graph input with an initialiser is a default, not a
  // constant: see IsConstant.
  const Tensor* initializer() const { return initializer_ ? &*initializer_ : nullptr; }
  // An initialiser that no caller can override.
  bool IsConstant() const { return initializer_.has_value() && !is_input_; }

  // Kept for export.
  std::string doc_string;
  Metadata metadata;
  std::string type_proto;  // serialised TypeProto where it is no plain tensor (sequences,
                           // optionals, maps), else empty
  // Serialised tensor TypeProto as imported, where dtype and shape would be written otherwise
  // (denotations, dims spelled differently). Export uses it while it means the same.
  std::string spelled_type;
  bool listed = false;        // has an entry in the file's value_info list
  std::string tensor_fields;  // of an initialiser: the rest of its serialised TensorProto (doc
                              // string, metadata)
  std::string sparse_proto;   // of an initialiser that is stored sparse: its SparseTensorProto;
                              // SetInitializer clears it
  std::string unknown_fields;

 private:
  friend class Graph;
  friend class Node;
  Value() = default;
  std::string name_;
  Graph* graph_ = nullptr;
  DataType dtype_ = DataType::kUndefined;
  std::optional<Shape> shape_;
  Node* producer_ = nullptr;
  int producer_index_ = -1;
  std::vector<Use> uses_;
  bool is_input_ = false;
  int output_count_ = 0;
  std::optional<Tensor> initializer_;
  std::list<std::unique_ptr<Value>>::iterator position_;  // in its graph
  std::list<Value*>::iterator initializer_position_;      // while it is an initialiser
};

// An operator call. Owned by its graph.
class Node {
 public:
  const std::string& domain() const { return domain_; }  // "" for ai.onnx
  const std::string& op_type() const { return op_type_; }
  bool Is(std::string_view op_type, std::string_view domain = "") const {
    return op_type_ == op_type && domain_ == domain;
  }
  Graph* graph() const { return graph_; }

  // Null entries are omitted optional inputs (outputs).
  const std::vector<Value*>& inputs() const { return inputs_; }
  const std::vector<Value*>& outputs() const { return outputs_; }
  int num_inputs() const { return static_cast<int>(inputs_.size()); }
  int num_outputs() const { return static_cast<int>(outputs_.size()); }
  // Null if the input is omitted or past the end.
  Value* input(int index) const { return index < num_inputs() ? inputs_[index] : nullptr; }
  Value* output(int index) const { return index < num_outputs() ? outputs_[index] : nullptr; }
  // Sets one input, growing the list with omitted ones; keeps use lists.
  void SetInput(int index, Value* value);

  // Attributes in file order.
  const std::vector<std::pair<std::string, Attribute>>& attributes() const { return attributes_; }
  const Attribute* attribute(std::string_view name) const;
  void SetAttribute(std::string_view name, Attribute attribute);
  void RemoveAttribute(std::string_view name);
  // Typed access; the default if absent, InvalidArgument (naming the node) if of another kind.
  absl::StatusOr<int64_t> IntAttribute(std::string_view name, int64_t default_value) const;
  absl::StatusOr<float> FloatAttribute(std::string_view name, float default_value) const;
  absl::StatusOr<std::string> StringAttribute(std::string_view name,
                                              std::string_view default_value) const;
  absl::StatusOr<std::vector<int64_t>> IntsAttribute(std::string_view name,
                                                     std::vector<int64_t> default_value) const;
  // The graphs among the attributes, in order.
  std::vector<Graph*> Subgraphs() const;

  // `node "/layers.3/mlp/Mul" (Mul)`; an unnamed node is called by its first output.
  std::string Description() const;

  std::string name;
  std::string overload;
  std::string doc_string;
  Metadata metadata;
  std::string unknown_fields;

 private:
  friend class Graph;
  Node() = default;
  std::string domain_;
  std::string op_type_;
  Graph* graph_ = nullptr;
  std::vector<Value*> inputs_;
  std::vector<size_t> use_positions_;  // by input: its place in the value's uses
  std::vector<Value*> outputs_;
  std::vector<std::pair<std::string, Attribute>> attributes_;
  std::list<std::unique_ptr<Node>>::iterator position_;
};

// A graph, or a function body. Nodes are kept in the order of the file, which Verify requires to be
// topological; the mutations below keep it so. Names of values are unique in a graph. Not
// thread-safe.
class Graph {
 public:
  Graph() = default;
  explicit Graph(Graph* parent);
  ~Graph();  // readers in subgraphs that outlive this graph lose their inputs
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // The graph around a subgraph, null at the top.
  Graph* parent() const { return parent_; }

  // --- building ---
  // A new value without a producer. The name must be free (PF_CHECK); see UniqueName.
  Value* AddValue(std::string name, DataType dtype = DataType::kUndefined,
                  std::optional<Shape> shape = std::nullopt);
  Value* AddInput(std::string name, DataType dtype, std::optional<Shape> shape);
  // dtype and shape are those of the tensor.
  Value* AddInitializer(std::string name, Tensor tensor);
  void SetInitializer(Value* value, Tensor tensor);
  void ClearInitializer(Value* value);
  void MarkInput(Value* value);
  void AddOutput(Value* value);  // one value may be several outputs
  void ReplaceOutput(int index, Value* value);
  void RemoveInput(int index);
  void RemoveOutput(int index);
  // A name not used in this graph, around it or in its subgraphs: `base`, else `base_1`, `base_2`,
  // ...
  std::string UniqueName(std::string_view base) const;
  void Rename(Value* value, std::string name);

  // Appends (before = null) or inserts a node. `outputs` must have no producer yet.
  Node* AddNode(std::string_view domain, std::string_view op_type, std::vector<Value*> inputs,
                std::vector<Value*> outputs, Node* before = nullptr);

  // --- reading ---
  Value* FindValue(std::string_view name) const;         // this graph only
  Value* FindValueInScope(std::string_view name) const;  // this graph, then the enclosing ones
  const std::vector<Value*>& inputs() const { return inputs_; }
  const std::vector<Value*>& outputs() const { return outputs_; }
  const std::list<std::unique_ptr<Node>>& nodes() const { return nodes_; }
  // Initialisers in the order they were added.
  std::vector<Value*> initializers() const;
  // Every value, in the order they were added.
  std::vector<Value*> values() const;
  int64_t num_nodes() const { return static_cast<int64_t>(nodes_.size()); }

  // --- mutations for passes ---
  // Lets all readers of `from`, a value of this graph, read `to` instead. If `from` is a graph
  // output, `to` becomes that output and takes its name. Where it cannot (it is a graph input or
  // output itself, or of an enclosing graph, or a subgraph has a value of that name), the output
  // becomes Identity(to). Either way the outputs of the graph are called as before.
  void ReplaceAllUses(Value* from, Value* to);
  // Erases a node none of whose outputs has a reader. PF_CHECKs that. Its outputs go too.
  void EraseNode(Node* node);
  // Erases a value that nothing produces, reads or exports.
  void EraseValue(Value* value);
  // Erases `node` if nothing reads it, then in turn the producers in this graph that only it kept
  // alive. Returns the number erased.
  int EraseIfDead(Node* node);
  // Moves `node` before `before` (null: to the end).
  void MoveBefore(Node* node, Node* before);
  // Reorders nodes topologically, keeping file order where it is free. InvalidArgument naming a
  // node if there is a cycle.
  absl::Status SortTopologically();
  // A deep copy; tensors share buffers. Values of enclosing graphs stay shared.
  std::unique_ptr<Graph> Clone() const;

  // Old value -> new value, for copies.
  using ValueMap = absl::flat_hash_map<const Value*, Value*>;
  // A deep copy as a subgraph of `parent` (may be null), in which `map` replaces values of
  // enclosing graphs; on return it has the values of this graph too.
  std::unique_ptr<Graph> CloneInto(Graph* parent, ValueMap& map) const;
  // A copy of an attribute whose subgraphs go under `parent`, as CloneInto.
  static Attribute CloneAttribute(const Attribute& attribute, Graph* parent, ValueMap& map);

  std::string name;
  std::string doc_string;
  Metadata metadata;
  std::string unknown_fields;

 private:
  friend class Node;
  static void AddUse(Value* value, Node* node, int index);
  static void RemoveUse(Value* value, Node* node, int index);

  void ReplaceOutputs(Value* from, Value* to);
  // Tells the graphs around this one of a name that a value of it, or of a graph in it, has or no
  // longer has.
  void TellParents(std::string_view name, int64_t change) const;

  Graph* parent_ = nullptr;
  absl::flat_hash_set<Graph*> children_;  // graphs whose parent this is
  std::list<std::unique_ptr<Node>> nodes_;
  std::vector<Value*> inputs_;
  std::vector<Value*> outputs_;
  std::list<std::unique_ptr<Value>> values_;
  std::list<Value*> initializers_;
  absl::flat_hash_map<std::string, Value*> by_name_;
  absl::flat_hash_map<std::string, int64_t> names_below_;  // of values in subgraphs, how many
  mutable absl::flat_hash_map<std::string, int64_t> next_suffix_;  // for UniqueName
};

// The values that a node reads: its inputs that are not omitted, then what its subgraphs read from
// graphs around them. Each once.
std::vector<Value*> ValuesRead(const Node& node);

}  // namespace pagefuse
