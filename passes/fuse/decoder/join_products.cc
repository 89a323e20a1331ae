// SPDX-License-Identifier: Apache-2.0
// join-products: products that read one input with constant weights of one kind become one product.
//
//   x --+-- Linear (wq) -- q
//       +-- Linear (wk) -- k    =>    q, k, v = pagefuse.SplitLinear <parts = [Nq, Nk, Nv]> (x, w)
//       +-- Linear (wv) -- v
//
// w has the rows of all weights, one matrix behind the other. On a device each product of a step is
// a launch, which takes as long as some of them; on the CPU a small product is too little for all
// threads, and each rounds x anew. The op stores every sum where its reader wants it: a Split behind
// a product would copy all rows; so where one is read by part alone, its parts are outputs too.
//
// A row of a weight in bfloat16 or codes is summed alone, by a kernel that is the same for all of
// them, so that bits stay. That of a matrix of numbers is not where it lies as columns: how its sums
// are cut follows from its size. Such matrices also stay on the memory of their file.
#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/tensor/absent_tensor.h"
#include "pagefuse/ir/tensor/resident_pages.h"
#include "pagefuse/ops/microsoft/matmul_nbits.h"
#include "pagefuse/ops/pagefuse/linear/split_linear.h"
#include "pagefuse/passes/edit/axes.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/match_failure.h"
#include "pagefuse/passes/edit/module_paths.h"
#include "pagefuse/passes/edit/op_types.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/fuse/fuse.h"

namespace pagefuse {
namespace {

using microsoft_ops::NBitsSizes;
using pagefuse_ops::kMostLinearParts;
using pagefuse_ops::kSplitLinearIn;

constexpr std::string_view kName = "join-products";

// Rows of a weight that every packing keeps together: parts of whole blocks are computed in place.
constexpr int64_t kBlockRows = 16;

// What a product must share with the others.
struct Kind {
  DataType type = DataType::kUndefined;  // of the weight
  int64_t k = 0;
  int64_t bits = 0, block = 0, accuracy_level = 0;  // of codes
  bool rounds = false;                              // codes whose kernel rounds x to int8
  bool has_bias = false;

  bool operator==(const Kind&) const = default;
};

struct Product {
  Node* node = nullptr;
  Kind kind;
  int64_t n = 0;
  Value* weight = nullptr;
  Value* scales = nullptr;  // of codes
  Value* bias = nullptr;
  std::vector<Value*> parts = {};  // of its columns, if nothing else reads them

  // What its columns go to.
  std::vector<Value*> outputs() const { return parts.empty() ? node->outputs() : parts; }

  std::vector<Value*> constants() const {
    std::vector<Value*> all = {weight, scales, bias};
    std::erase(all, nullptr);
    return all;
  }
};

int64_t ColumnsOf(const Value& value) {
  return value.shape() && value.shape()->rank() > 0 ? value.shape()->back(0).constant().value_or(0)
                                                    : 0;
}

// The parts of the product's columns that nodes split it into, in order; none where something else
// reads them, or a part begins inside of a block.
std::vector<Value*> PartsOf(const Node& product, const SymbolicContents& contents) {
  const Value& whole = *product.output(0);
  const Shape* shape = ShapeOf(&whole);
  if (!shape || shape->rank() == 0 || whole.is_output()) return {};
  std::map<int64_t, std::pair<Value*, int64_t>> places;  // by where it begins: its end
  for (const Use& use : whole.uses()) {
    for (Value* output : use.node->outputs()) {
      const auto part = output ? PartOf(*output, shape->rank() - 1, contents) : std::nullopt;
      if (!part || part->whole != &whole || part->begin % kBlockRows != 0) return {};
      if (!places.insert({part->begin, {output, part->end}}).second) return {};
    }
  }
  std::vector<Value*> parts;
  int64_t columns = 0;
  for (const auto& [begin, part] : places) {
    if (begin != columns || part.second <= begin) return {};
    columns = part.second;
    parts.push_back(part.first);
  }
  const bool all = columns == ColumnsOf(whole) && columns % kBlockRows == 0;
  return all && parts.size() <= kMostLinearParts ? parts : std::vector<Value*>();
}

// How many outputs the products have.
int64_t CountParts(const std::vector<Product>& group) {
  return std::accumulate(group.begin(), group.end(), int64_t{0}, [](int64_t sum, const Product& p) {
    return sum + static_cast<int64_t>(p.outputs().size());
  });
}

// How often a constant's memory is held, under whatever name.
using Holders = absl::flat_hash_map<const void*, int>;

Holders HoldersIn(const Graph& graph) {
  Holders holders;
  for (const auto& value : graph.values()) {
    if (value->initializer() != nullptr) ++holders[value->initializer()->data()];
  }
  return holders;
}

bool IsCodes(const Node& node) { return node.Is("MatMulNBits", "com.microsoft"); }

// Products of x by a constant, of whatever kind.
bool MultipliesByConstant(const Node& node) {
  const bool numbers = IsAnyOf(node, {"MatMul", "Gemm"}) ||
                       node.Is("FusedMatMul", "com.microsoft") || node.Is("Linear", "pagefuse");
  return (numbers || IsCodes(node)) && node.num_inputs() > 1 && ConstantOf(node.input(1));
}

absl::Status CheckCodes(const Node& node) {
  using namespace microsoft_ops;
  for (const int port : {kNBitsZeros, kNBitsGroupIndex}) {
    if (port >= node.num_inputs() || node.input(port) == nullptr) continue;
    return MatchFailure("it has ", port == kNBitsZeros ? "zero points" : "an order of columns");
  }
  return absl::OkStatus();
}

absl::StatusOr<Product> CodedProduct(Node* node) {
  using namespace microsoft_ops;
  PF_RETURN_IF_ERROR(CheckCodes(*node));
  PF_ASSIGN_OR_RETURN(const NBitsSizes sizes, NBitsSizes::Of(*node));
  return Product{.node = node,
                 .kind = {.type = DataType::kUint8,
                          .k = sizes.k,
                          .bits = sizes.bits,
                          .block = sizes.block,
                          .accuracy_level = IntOr(*node, "accuracy_level", 0),
                          .rounds = SupportsInt8(*node, sizes).ok(),
                          .has_bias = node->input(kNBitsBias) != nullptr},
                 .n = sizes.n,
                 .weight = node->input(kNBitsB),
                 .scales = node->input(kNBitsScales),
                 .bias = node->input(kNBitsBias)};
}

absl::StatusOr<Product> RowsProduct(Node* node) {
  if (!node->Is("Linear", "pagefuse")) {
    return MatchFailure("its matrix of ", DataTypeName(ConstantOf(node->input(1))->dtype()),
                        " stays where the file has it");
  }
  const std::vector<int64_t>& dims = ConstantOf(node->input(1))->dims();
  if (dims.size() != 2) return MatchFailure("its weight is a stack of matrices");
  Value* bias = node->num_inputs() > 2 ? node->input(2) : nullptr;
  return Product{.node = node,
                 .kind = {.type = DataType::kBfloat16, .k = dims[1], .has_bias = bias != nullptr},
                 .n = dims[0],
                 .weight = node->input(1),
                 .bias = bias};
}

class Joiner {
 public:
  Joiner(Model& model, PassContext& context, const GraphScope& scope)
      : model_(model),
        context_(context),
        graph_(*scope.graph),
        opsets_(*scope.opsets),
        holders_(HoldersIn(graph_)) {}

  absl::StatusOr<bool> Run() {
    bool changed = false;
    for (const std::vector<Node*>& readers : Readers()) {
      for (std::vector<Product>& group : Groups(readers)) {
        PF_RETURN_IF_ERROR(Join(group));
        PF_RETURN_IF_ERROR(context_.Rewrote(model_, kName));
        changed = true;
      }
    }
    return changed;
  }

 private:
  // The products by constants that read one value, by value; in the order of the graph.
  std::vector<std::vector<Node*>> Readers() const {
    std::vector<std::vector<Node*>> all;
    absl::flat_hash_map<const Value*, size_t> index;
    for (Node* node : NodesOf(graph_, MultipliesByConstant)) {
      const auto [place, is_new] = index.emplace(node->input(0), all.size());
      if (is_new) all.emplace_back();
      all[place->second].push_back(node);
    }
    std::erase_if(all, [this](const std::vector<Node*>& nodes) {
      return nodes.size() < 2 && PartsOf(*nodes[0], context_.contents).empty();
    });
    return all;
  }

  // Those of them that are joined.
  std::vector<std::vector<Product>> Groups(const std::vector<Node*>& readers) const {
    std::vector<std::vector<Product>> groups;
    for (Node* node : readers) {
      const absl::StatusOr<Product> product = ProductOf(node);
      if (!product.ok()) {
        Miss(*node, product.status());
        continue;
      }
      auto group = std::ranges::find_if(groups, [&](const std::vector<Product>& others) {
        const auto parts = CountParts(others) + CountParts({*product});
        return others[0].kind == product->kind && parts <= kMostLinearParts;
      });
      if (group == groups.end()) group = groups.emplace(groups.end());
      group->push_back(*product);
    }
    std::erase_if(groups, [&](const std::vector<Product>& group) {
      const absl::Status status = CheckGroup(group);
      if (!status.ok()) Miss(*group[0].node, status);
      return !status.ok();
    });
    return groups;
  }

  void Miss(const Node& node, const absl::Status& why) const {
    context_.AddMissedMatch(kName, node.output(0)->name(), StdView(why.message()));
  }

  absl::StatusOr<Product> ProductOf(Node* node) const {
    PF_ASSIGN_OR_RETURN(Product product, IsCodes(*node) ? CodedProduct(node) : RowsProduct(node));
    const Value& x = *node->input(0);
    if (x.dtype() != DataType::kFloat) {
      return MatchFailure(x, " is ", DataTypeName(x.dtype()), ", expected float");
    }
    if (product.n % kBlockRows != 0) {
      return MatchFailure("it has ", product.n, " columns, expected a multiple of ", kBlockRows);
    }
    for (const Value* constant : product.constants()) {
      PF_RETURN_IF_ERROR(CheckConstant(*constant));
    }
    product.parts = PartsOf(*node, context_.contents);
    return product;
  }

  // Memory would hold it twice.
  absl::Status CheckConstant(const Value& value) const {
    const Tensor* tensor = ConstantOf(&value);
    if (tensor == nullptr) return MatchFailure(value, " is no constant");
    const auto holders = holders_.find(tensor->data());
    const bool shared = holders != holders_.end() && holders->second > 1 && !IsAbsent(*tensor);
    if (value.graph() == &graph_ && value.uses().size() == 1 && !value.is_output() && !shared) {
      return absl::OkStatus();
    }
    return MatchFailure(value, " is read by others too");
  }

  // Whether they have two outputs at least, and are computed as they were.
  absl::Status CheckGroup(const std::vector<Product>& group) const {
    if (CountParts(group) < 2) return MatchFailure("no other product of its kind reads its input");
    const Product& first = group[0];
    if (!first.scales) return absl::OkStatus();
    NBitsSizes whole{.k = first.kind.k, .n = 0, .bits = first.kind.bits, .block = first.kind.block};
    for (const Product& product : group) whole.n += product.n;
    if (SupportsInt8(*first.node, whole).ok() == first.kind.rounds) return absl::OkStatus();
    return MatchFailure("products by ", first.n, " rows of codes keep activations in float, by ",
                        whole.n, " they do not");
  }

  absl::Status Join(const std::vector<Product>& group) {
    PF_ASSIGN_OR_RETURN(std::vector<Value*> inputs, Constants(group));
    Node* first = group[0].node;
    std::vector<Value*> outputs;
    std::vector<int64_t> parts;
    for (const Product& product : group) {
      for (const Value* y : product.outputs()) {
        outputs.push_back(graph_.AddValue(graph_.UniqueName(y->name()), y->dtype(), y->shape()));
        parts.push_back(product.parts.empty() ? product.n : ColumnsOf(*y));
      }
    }
    Node* joined = graph_.AddNode("pagefuse", "SplitLinear", std::move(inputs), outputs, first);
    joined->name = first->name;
    joined->SetAttribute("parts", MakeAttribute(std::move(parts)));
    if (group[0].scales) {
      joined->SetAttribute("bits", MakeAttribute(group[0].kind.bits));
      joined->SetAttribute("block_size", MakeAttribute(group[0].kind.block));
      joined->SetAttribute("accuracy_level", MakeAttribute(group[0].kind.accuracy_level));
    }
    if (OpsetOf(opsets_, "pagefuse") == 0) opsets_["pagefuse"] = 1;
    NoteOrigins(group, *joined);
    auto output = outputs.begin();
    for (const Product& product : group) {
      const auto first_part = output;
      output += static_cast<std::ptrdiff_t>(product.outputs().size());
      TakeOver(product, {first_part, output});
    }
    return absl::OkStatus();
  }

  // The joined weight, and what else the op takes.
  absl::StatusOr<std::vector<Value*>> Constants(const std::vector<Product>& group) {
    std::vector<Value*> inputs(kSplitLinearIn.size(), nullptr);
    inputs[kSplitLinearIn["x"]] = group[0].node->input(0);
    const auto put = [&](int port, Value* Product::*which) -> absl::Status {
      if (group[0].*which == nullptr) return absl::OkStatus();
      PF_ASSIGN_OR_RETURN(Tensor rows, Rows(group, which));
      const std::string name = StrCat((group[0].*which)->name(), ".joined");
      inputs[port] = AddConstant(graph_, name, std::move(rows), context_.contents);
      return absl::OkStatus();
    };
    PF_RETURN_IF_ERROR(put(kSplitLinearIn["w"], &Product::weight));
    PF_RETURN_IF_ERROR(put(kSplitLinearIn["bias"], &Product::bias));
    PF_RETURN_IF_ERROR(put(kSplitLinearIn["scales"], &Product::scales));
    while (inputs.back() == nullptr) inputs.pop_back();
    return inputs;
  }

  // The rows of these constants, one behind the other.
  static absl::StatusOr<Tensor> Rows(const std::vector<Product>& group, Value* Product::*which) {
    std::vector<const Tensor*> tensors;
    int64_t rows = 0;
    for (const Product& product : group) {
      tensors.push_back(ConstantOf(product.*which));
      rows += product.n;
    }
    const std::vector<int64_t> dims = DimsOf(group[0], which, rows);
    const DataType type = tensors[0]->dtype();
    if (std::ranges::any_of(tensors, [](const Tensor* tensor) { return IsAbsent(*tensor); })) {
      return AbsentTensor(type, dims);
    }
    PF_ASSIGN_OR_RETURN(Tensor joined, Tensor::Allocate(type, dims));
    auto* to = static_cast<std::byte*>(joined.mutable_data());
    for (const Tensor* tensor : tensors) {
      const auto bytes = static_cast<size_t>(tensor->byte_size());
      std::memcpy(to, tensor->data(), bytes);
      ReleasePages(*tensor->buffer(), tensor->data(), bytes);
      to += bytes;
    }
    return joined;
  }

  // Of so many rows of one of the product's constants, which may be flat.
  static std::vector<int64_t> DimsOf(const Product& product, Value* Product::*which, int64_t rows) {
    if (which == &Product::bias) return {rows};
    const Kind& kind = product.kind;
    const NBitsSizes sizes{.k = kind.k, .n = rows, .bits = kind.bits, .block = kind.block};
    if (which == &Product::scales) return {rows, sizes.blocks()};
    if (product.scales == nullptr) return {rows, kind.k};
    return {rows, sizes.blocks(), sizes.block_bytes()};
  }

  // What is known of the nodes that it is made of.
  static void NoteOrigins(const std::vector<Product>& group, Node& joined) {
    std::vector<const Node*> nodes;
    for (const Product& product : group) nodes.push_back(product.node);
    for (const auto& [key, value] : nodes[0]->metadata) {
      if (KeepsMetadata(key)) SetMetadata(joined.metadata, key, value);
    }
    NoteModules(nodes, joined);
  }

  // The product gives way to outputs of the op; its constants go with it.
  void TakeOver(const Product& product, const std::vector<Value*>& outputs) {
    const std::vector<Value*> constants = product.constants();
    std::vector<std::string> names;
    std::vector<Node*> old_nodes;
    for (size_t i = 0; i < outputs.size(); ++i) {
      Value* old = product.outputs()[i];
      names.push_back(old->name());
      if (old_nodes.empty() || old_nodes.back() != old->producer()) {
        old_nodes.push_back(old->producer());
      }
      ReplaceValue(graph_, old, outputs[i]);
    }
    for (Node* node : old_nodes) EraseDead(node, context_.contents);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (graph_.FindValue(names[i]) == nullptr) graph_.Rename(outputs[i], names[i]);
    }
    for (Value* constant : constants) {
      context_.contents.erase(constant);
      graph_.EraseValue(constant);
    }
  }

  Model& model_;
  PassContext& context_;
  Graph& graph_;
  OpsetImports& opsets_;
  const Holders holders_;
};

}  // namespace

std::unique_ptr<Pass> JoinProductsOfOneInput() {
  return MakeGraphPass(
      kName,
      "Joins products of one input by constants of one kind into SplitLinear, one product, and "
      "lets it split what they give.",
      [](Model& model, PassContext& context, const GraphScope& scope) {
        return Joiner(model, context, scope).Run();
      });
}

}  // namespace pagefuse
