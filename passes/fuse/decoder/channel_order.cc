// SPDX-License-Identifier: Apache-2.0
// channel-order: the rows of a weight are put in the order in which channels of its product are read.
//
//   x -- Linear (w) -- y [.., 2 D] -- y[.., 0::2] --+-- Concat -- z
//                                  -- y[.., 1::2] --+
//     =>  x -- Linear (rows 0, 2, .., 1, 3, .. of w) -- z
//
// So exports of DeepSeek make halves of the pairs that they rotate, in every step: four copies, each
// of which is a launch on a device. Splits into heads and parts may lie between. A row of a weight in
// bfloat16 or codes is summed alone wherever it lies, so that bits stay; matrices of numbers, which
// hold columns, stay on the memory of their file.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/tensor/absent_tensor.h"
#include "pagefuse/ops/microsoft/matmul_nbits.h"
#include "pagefuse/passes/edit/axes.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/readers_text.h"
#include "pagefuse/passes/edit/slice_cuts.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/fuse/fuse.h"
#include "pagefuse/passes/rewrite/pattern.h"

namespace pagefuse {
namespace {

// Of the last axis: what lies at each place, by places of before.
using Order = std::vector<int64_t>;

int64_t Channels(const Value& value) {
  const Shape* shape = ShapeOf(&value);
  return shape && shape->rank() > 0 ? shape->back(0).constant().value_or(0) : 0;
}

Order InOrder(int64_t count) {
  Order order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

// The channels of its data that a Slice takes, if it cuts the last axis alone.
std::optional<Order> ChannelsOfSlice(const Node& slice, const SymbolicContents& contents) {
  const auto cuts = CutsOfSlice(slice, contents);
  if (!cuts || cuts->size() != 1 || cuts->front().step < 1) return std::nullopt;
  const auto start = cuts->front().start.constant();
  const Shape& shape = *slice.input(0)->shape();
  if (cuts->front().axis != shape.rank() - 1 || !start || *start < 0) return std::nullopt;
  Order order = InOrder(Channels(*slice.output(0)));
  for (int64_t& place : order) place = *start + place * cuts->front().step;
  return order;
}

// Slices of one value that are joined again: the value, and in which order they take its channels.
struct Reordered {
  Value* whole = nullptr;
  Order order;
};

std::optional<Reordered> ReorderedBy(const Node& concat, const SymbolicContents& contents) {
  const Shape* shape = ShapeOf(concat.output(0));
  if (!concat.Is("Concat") || !shape || concat.output(0)->is_output() ||
      NormalAxis(IntOr(concat, "axis", 0), shape->rank()) != shape->rank() - 1) {
    return std::nullopt;
  }
  Reordered found;
  for (const Value* input : concat.inputs()) {
    const Node* slice = input->producer();
    const auto order =
        slice && OnlyReader(*input) == &concat ? ChannelsOfSlice(*slice, contents) : std::nullopt;
    if (!order || (found.whole && slice->input(0) != found.whole)) return std::nullopt;
    found.whole = slice->input(0);
    found.order.insert(found.order.end(), order->begin(), order->end());
  }
  Order sorted = found.order;
  std::ranges::sort(sorted);
  const bool takes_all = found.whole && sorted == InOrder(Channels(*found.whole));
  const bool alone = takes_all && !found.whole->is_output() &&
                     found.whole->uses().size() == static_cast<size_t>(concat.num_inputs());
  return alone ? std::optional(found) : std::nullopt;
}

// The order of the channels of what `node` reads that brings those of its output in `order`; nullopt
// if it is no view and no move that keeps channels together.
std::optional<Order> OrderBefore(const Node& node, const Value& output, const Order& order,
                                 const SymbolicContents& contents) {
  const int64_t before = Channels(*node.input(0)), after = Channels(output);
  if (before == 0 || after == 0) return std::nullopt;
  Order result = InOrder(before);
  if (node.Is("Split")) {
    const auto part = PartOf(output, ShapeOf(&output)->rank() - 1, contents);
    if (!part) return std::nullopt;
    for (int64_t i = 0; i < after; ++i) result[part->begin + i] = part->begin + order[i];
    return result;
  }
  if (node.Is("Transpose")) {
    const auto perm = PermutationOf(node);
    if (!perm || perm->back() != static_cast<int64_t>(perm->size()) - 1) return std::nullopt;
    return order;
  }
  if (!IsViewNode(node) || before % after != 0) return std::nullopt;
  for (int64_t i = 0; i < before; ++i) result[i] = i / after * after + order[i % after];
  return result;
}

// A product, and its constants that hold a row for each of its columns.
struct Product {
  Node* node = nullptr;
  std::vector<int> rows;
};

std::optional<Product> ProductOf(Node* node) {
  using namespace microsoft_ops;
  if (node->Is("Linear", "pagefuse")) {
    const Tensor* weight = ConstantOf(node->input(1));
    return weight && weight->rank() == 2 ? std::optional(Product{node, {1, 2}}) : std::nullopt;
  }
  if (node->Is("MatMulNBits", "com.microsoft")) {
    return Product{node, {kNBitsB, kNBitsScales, kNBitsZeros, kNBitsBias}};
  }
  return std::nullopt;
}

// True if nobody else reads the constants, each of which is `count` rows, maybe flat.
bool HoldsRows(const Product& product, int64_t count) {
  return std::ranges::all_of(product.rows, [&](int port) {
    const Value* value = port < product.node->num_inputs() ? product.node->input(port) : nullptr;
    if (!value) return port != product.rows.front();
    const Tensor* tensor = ConstantOf(value);
    return tensor && tensor->rank() > 0 && tensor->dims()[0] % count == 0 &&
           tensor->byte_size() % count == 0 && BitWidth(tensor->dtype()) % 8 == 0 &&
           OnlyReader(*value) == product.node && value->graph() == product.node->graph();
  });
}

absl::StatusOr<Tensor> RowsInOrder(const Tensor& from, const Order& order) {
  if (IsAbsent(from)) return AbsentTensor(from.dtype(), from.dims());
  PF_ASSIGN_OR_RETURN(Tensor to, Tensor::Allocate(from.dtype(), from.dims()));
  const auto bytes = static_cast<size_t>(from.byte_size()) / order.size();
  const auto* source = static_cast<const std::byte*>(from.data());
  auto* target = static_cast<std::byte*>(to.mutable_data());
  for (const int64_t row : order) {
    std::memcpy(target, source + static_cast<size_t>(row) * bytes, bytes);
    target += bytes;
  }
  return to;
}

// The product that a value is a part of, and the order of its columns that gives the value's
// channels that of the reader.
struct Source {
  Product product;
  Order order;
  std::vector<Node*> path;  // from the value to the product
};

std::optional<Source> SourceOf(Reordered found, const SymbolicContents& contents) {
  std::vector<Node*> path;
  while (path.size() < kMaxViews) {
    Node* node = found.whole->producer();
    if (!node) return std::nullopt;
    if (const auto product = ProductOf(node)) {
      if (!HoldsRows(*product, static_cast<int64_t>(found.order.size()))) return std::nullopt;
      return Source{*product, std::move(found.order), std::move(path)};
    }
    auto order = OrderBefore(*node, *found.whole, found.order, contents);
    if (!order || OnlyReader(*node->input(0)) != node) return std::nullopt;
    path.push_back(node);
    found = {node->input(0), *std::move(order)};
  }
  return std::nullopt;
}

// The same node with other inputs.
Node* CopyOf(Graph& graph, Node* node, std::vector<Value*> inputs) {
  GraphBuilder builder(graph, node, node->output(0)->name());
  Node* copy = builder.AddNode(node->domain(), node->op_type(), std::move(inputs),
                               node->num_outputs(), *node);
  for (int i = 0; i < node->num_outputs(); ++i) {
    copy->output(i)->set_dtype(node->output(i)->dtype());
    copy->output(i)->set_shape(node->output(i)->shape());
  }
  TakePlace(*copy, *node);
  return copy;
}

absl::StatusOr<Node*> OrderedProduct(Graph& graph, const Source& source) {
  Node* product = source.product.node;
  std::vector<Value*> inputs = product->inputs();
  for (const int port : source.product.rows) {
    if (port >= product->num_inputs() || !inputs[port]) continue;
    PF_ASSIGN_OR_RETURN(Tensor rows, RowsInOrder(*ConstantOf(inputs[port]), source.order));
    const std::string name = graph.UniqueName(StrCat(inputs[port]->name(), ".ordered"));
    inputs[port] = graph.AddInitializer(name, std::move(rows));
  }
  return CopyOf(graph, product, std::move(inputs));
}

// The values between change, too: all of them are made anew.
absl::StatusOr<bool> Rewrite(Graph& graph, Node* concat, const SymbolicContents& contents) {
  const auto found = ReorderedBy(*concat, contents);
  const auto source = found ? SourceOf(*found, contents) : std::nullopt;
  if (!source) return false;
  const std::vector<Value*> constants = source->product.node->inputs();
  PF_ASSIGN_OR_RETURN(Node * last, OrderedProduct(graph, *source));
  Value* value = last->output(0);
  for (auto node = source->path.rbegin(); node != source->path.rend(); ++node) {
    std::vector<Value*> inputs = (*node)->inputs();
    inputs[0] = value;
    last = CopyOf(graph, *node, std::move(inputs));
    const Value* next = node + 1 == source->path.rend() ? found->whole : (*(node + 1))->input(0);
    for (int i = 0; i < last->num_outputs(); ++i) {
      Value* old = (*node)->output(i);
      if (old == next) value = last->output(i);
      if (old != next) ReplaceValue(graph, old, last->output(i));
    }
  }
  ReplaceNode(concat, value);
  for (Value* constant : constants) {
    if (constant && constant->initializer() && constant->uses().empty()) {
      graph.EraseValue(constant);
    }
  }
  return true;
}

}  // namespace

std::unique_ptr<Pass> ChannelOrder() {
  return MakeNodePass(
      "channel-order",
      "Puts the rows of a weight in the order in which the channels of its product are read.",
      Rewrite);
}

}  // namespace pagefuse
