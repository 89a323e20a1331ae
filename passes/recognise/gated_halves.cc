// SPDX-License-Identifier: Apache-2.0
// gated-halves: splits a product of which one half gates the other into two products. The op that
// fuses them still reads x once.
//
//   y = x @ w [K, 2 N];  gate, up = halves of y;  act(gate) * up
//     =>  act(x @ w_gate) * (x @ w_up)                          w_gate, w_up: halves of w
//
// Weights that FusedMatMul reads transposed, [2 N, K], and codes of MatMulNBits are cut where they
// lie; columns of the others are copied once.
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/tensor/absent_tensor.h"
#include "pagefuse/passes/edit/axes.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/readers_text.h"
#include "pagefuse/passes/edit/weight_origin.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/recognise/recognise.h"

namespace pagefuse {
namespace {

struct Halves {
  Value* low = nullptr;
  Value* high = nullptr;
};

int64_t Columns(const Value& value) {
  return value.shape() && value.shape()->rank() > 0 ? value.shape()->back(0).constant().value_or(-1)
                                                    : -1;
}

// What nothing but two halves along the last axis is read of.
std::optional<Halves> HalvesOf(const Value& whole, const SymbolicContents& contents) {
  const int64_t columns = Columns(whole);
  if (whole.is_output() || columns < 2) return std::nullopt;
  Halves halves;
  for (const Use& use : whole.uses()) {
    for (Value* output : use.node->outputs()) {
      const auto part =
          output ? PartOf(*output, whole.shape()->rank() - 1, contents) : std::nullopt;
      if (!part || part->whole != &whole || 2 * (part->end - part->begin) != columns) {
        return std::nullopt;
      }
      Value*& half = part->begin == 0 ? halves.low : halves.high;
      if (half || (part->begin != 0 && 2 * part->begin != columns)) return std::nullopt;
      half = output;
    }
  }
  return halves.low && halves.high ? std::optional(halves) : std::nullopt;
}

// act(gate) * up and nothing else.
bool Gates(const Value& gate, const Value& up) {
  const Node* activation = OnlyReader(gate);
  const Node* product = OnlyReader(up);
  if (!activation || !product || !product->Is("Mul")) return false;
  const bool activates = activation->Is("Swish") || activation->Is("Gelu");
  return activates && OnlyReader(*activation->output(0)) == product;
}

// Half of the rows of a constant, on the same memory.
absl::StatusOr<Tensor> HalfOfRows(const Tensor& whole, int which) {
  std::vector<int64_t> dims = whole.dims();
  dims[0] /= 2;
  const int64_t bytes = whole.byte_size() / 2;
  return Tensor::View(whole.dtype(), std::move(dims), whole.buffer(),
                      whole.buffer_offset() + static_cast<size_t>(which * bytes));
}

absl::StatusOr<Tensor> HalfOfColumns(const Tensor& whole, int which) {
  const int64_t rows = whole.dims()[0], half = whole.dims()[1] / 2;
  if (IsAbsent(whole)) return AbsentTensor(whole.dtype(), {rows, half});
  PF_ASSIGN_OR_RETURN(Tensor part, Tensor::Allocate(whole.dtype(), {rows, half}));
  const int64_t bytes = half * BitWidth(whole.dtype()) / 8;
  const auto* from = static_cast<const std::byte*>(whole.data()) + which * bytes;
  auto* to = static_cast<std::byte*>(part.mutable_data());
  for (int64_t row = 0; row < rows; ++row) {
    std::memcpy(to + row * bytes, from + 2 * row * bytes, static_cast<size_t>(bytes));
  }
  return part;
}

// A product, and its constant operands that hold a row for each column of it.
struct Product {
  Node* node = nullptr;
  std::vector<int> rows;  // none: its weight holds columns
};

// The constant if it is one that can be cut in two.
const Tensor* EvenConstant(const Value* value, int axis) {
  const Tensor* tensor = ConstantOf(value);
  const bool even = tensor && tensor->rank() > axis && tensor->dims()[axis] % 2 == 0 &&
                    BitWidth(tensor->dtype()) % 8 == 0 && tensor->size() > 0;
  return even && tensor->buffer() ? tensor : nullptr;
}

std::optional<Product> CodedProduct(Node* node) {
  Product product{node, {1, 2}};
  for (int i = 1; i < node->num_inputs(); ++i) {
    if (!node->input(i)) continue;
    if (i > 3 || !EvenConstant(node->input(i), 0)) return std::nullopt;
    if (i == 3) product.rows.push_back(i);
  }
  return product;
}

bool IsPlain(const Node& product) {
  const auto alpha = product.FloatAttribute("alpha", 1.0f);
  return alpha.ok() && *alpha == 1.0f && IntOr(product, "transA", 0) == 0 &&
         IntOr(product, "transBatchA", 0) == 0 && IntOr(product, "transBatchB", 0) == 0;
}

std::optional<Product> ProductOf(Node* node) {
  if (node->Is("MatMulNBits", "com.microsoft")) return CodedProduct(node);
  const bool fused = node->Is("FusedMatMul", "com.microsoft") && IsPlain(*node);
  if (!fused && !node->Is("MatMul")) return std::nullopt;
  const bool by_rows = fused && IntOr(*node, "transB", 0) != 0;
  const Tensor* weight = EvenConstant(node->input(1), by_rows ? 0 : 1);
  if (!weight || weight->rank() != 2) return std::nullopt;
  return by_rows ? Product{node, {1}} : Product{node, {}};
}

// A product that gives one half of the columns.
absl::StatusOr<Value*> Half(Graph& graph, const Product& product, int which) {
  const Node& whole = *product.node;
  std::vector<Value*> inputs = whole.inputs();
  const auto cut = [&](int i, absl::StatusOr<Tensor> part) -> absl::Status {
    PF_RETURN_IF_ERROR(part.status());
    Value* made = graph.AddInitializer(graph.UniqueName(inputs[i]->name()), *std::move(part));
    NoteOrigin(*inputs[i], *made);
    inputs[i] = made;
    return absl::OkStatus();
  };
  for (int i : product.rows) PF_RETURN_IF_ERROR(cut(i, HalfOfRows(*ConstantOf(inputs[i]), which)));
  if (product.rows.empty()) {
    PF_RETURN_IF_ERROR(cut(1, HalfOfColumns(*ConstantOf(inputs[1]), which)));
  }
  GraphBuilder builder(graph, product.node, whole.output(0)->name());
  Node* half = builder.AddNode(whole.domain(), whole.op_type(), inputs, 1, whole);
  const int64_t columns = IntOr(whole, "N", 0);
  if (columns > 0) half->SetAttribute("N", MakeAttribute(columns / 2));
  half->name = StrCat(NodeLabel(whole), which == 0 ? ".low" : ".high");
  half->metadata = whole.metadata;
  return half->output(0);
}

absl::StatusOr<bool> Rewrite(Graph& graph, Node* node, const SymbolicContents& contents) {
  const std::optional<Product> product = ProductOf(node);
  if (!product || !node->output(0)->shape()) return false;
  const std::optional<Halves> halves = HalvesOf(*node->output(0), contents);
  if (!halves || (!Gates(*halves->low, *halves->high) && !Gates(*halves->high, *halves->low))) {
    return false;
  }
  PF_ASSIGN_OR_RETURN(Value * low, Half(graph, *product, 0));
  PF_ASSIGN_OR_RETURN(Value * high, Half(graph, *product, 1));
  graph.ReplaceAllUses(halves->low, low);
  graph.ReplaceAllUses(halves->high, high);
  return true;
}

}  // namespace

std::unique_ptr<Pass> RecogniseGatedHalves() {
  return MakeNodePass("gated-halves",
                      "Splits a product into two where one half of its result gates the other.",
                      Rewrite);
}

}  // namespace pagefuse
