// SPDX-License-Identifier: Apache-2.0
// hyper-connections: how a layer reads and mixes the streams of its residual, written out round by
// round, becomes pagefuse.HyperConnectionMix.
//
//   a [.., M], b [.., M], c [.., M * M] = Split (logits), or three Slices
//   pre  = Sigmoid (a * s0 + base0) + eps
//   post = Sigmoid (b * s1 + base1) * f
//   comb = Softmax (c in squares * s2 + base2) + eps, divided by its sums + eps over rows, then over
//          columns and rows in turn
//     =>  pagefuse.HyperConnectionMix <streams = M, rounds, epsilon = eps, post_factor = f>
//             (logits, Concat (s0, s1, s2), Concat (base0, base1, base2))
//
// The rounds are counted; M and the numbers are those of the graph. A scale of 1 or a base of zeros
// need not be there.
#include <map>
#include <optional>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/analysis/indexing/indexing_analysis.h"
#include "pagefuse/passes/edit/axes.h"
#include "pagefuse/passes/edit/constants.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/match_failure.h"
#include "pagefuse/passes/edit/readers_text.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/recognise/recognise.h"

namespace pagefuse {
namespace {

constexpr std::string_view kName = "hyper-connections";

const Node* OnlyReader(const Value& value, std::string_view op) {
  const Node* reader = OnlyReader(value);
  return reader && reader->Is(op) ? reader : nullptr;
}

// The other operand of a node with two.
Value* Beside(const Node& node, const Value& value) {
  return node.input(0) == &value ? node.input(1) : node.input(0);
}

std::optional<double> NumberBeside(const Node& node, const Value& value) {
  return NumberOf(Beside(node, value));
}

// value * a number + constants of `dims`. Null: a factor of 1, a base of zeros, which are not
// written.
struct Moved {
  Value* scale = nullptr;
  Value* base = nullptr;
  const Value* result = nullptr;
  std::vector<int64_t> dims;
};
Moved MovedOf(const Value& value, const std::vector<int64_t>& dims) {
  Moved moved{.result = &value, .dims = dims};
  const Node* product = OnlyReader(value, "Mul");
  if (product && NumberBeside(*product, value)) {
    moved.scale = Beside(*product, value);
    moved.result = product->output(0);
  }
  const Node* sum = OnlyReader(*moved.result, "Add");
  const Tensor* base = sum ? ConstantOf(Beside(*sum, *moved.result)) : nullptr;
  if (base && base->dims() == dims) {
    moved.base = Beside(*sum, *moved.result);
    moved.result = sum->output(0);
  }
  return moved;
}

// A number that is joined to a sigmoid of `value` by `op`. A quotient is a product with the inverse.
struct Opened {
  Value* result = nullptr;
  double number = 0;
};
std::optional<Opened> OpenedOf(const Value& value, std::string_view op) {
  const Node* sigmoid = OnlyReader(value, "Sigmoid");
  if (!sigmoid) return std::nullopt;
  const Value& open = *sigmoid->output(0);
  const Node* joined = OnlyReader(open, op);
  const Node* quotient = op == "Mul" ? OnlyReader(open, "Div") : nullptr;
  if (quotient && quotient->input(0) == &open) joined = quotient;
  const auto number = joined ? NumberBeside(*joined, open) : std::nullopt;
  if (!number || *number == 0) return std::nullopt;
  return Opened{joined->output(0), joined == quotient ? 1 / *number : *number};
}

// The matrix divided by its sums + epsilon along the axis `from_end` from the last, or null.
Value* Balanced(const Value& matrix, int from_end, double epsilon,
                const SymbolicContents& contents) {
  if (matrix.is_output() || matrix.uses().size() != 2) return nullptr;
  for (const Use& use : matrix.uses()) {
    const Node* sum = use.node;
    const auto reduced = sum->Is("ReduceSum") ? ReducedBy(*sum, contents) : std::nullopt;
    if (!reduced || IntOr(*sum, "keepdims", 1) == 0 ||
        reduced->axis != matrix.shape()->rank() - 1 - from_end) {
      continue;
    }
    const Node* least = OnlyReader(*sum->output(0), "Add");
    if (!least || NumberBeside(*least, *sum->output(0)) != epsilon) return nullptr;
    const Node* quotient = OnlyReader(*least->output(0), "Div");
    if (quotient && quotient->input(0) == &matrix && quotient->input(1) == least->output(0)) {
      return quotient->output(0);
    }
  }
  return nullptr;
}

struct Mixing {
  Value* logits = nullptr;
  int64_t streams = 0, rounds = 0;
  Moved pre_moved, post_moved, comb_moved;
  Opened pre, post;
  Value* comb = nullptr;
};

// The last axis of `whole`, cut into three.
struct Cut {
  Value* whole = nullptr;
  std::vector<Value*> parts;
  Node* first = nullptr;  // of the nodes that cut
};

// The parts of one value along its last axis, by where they begin.
struct Slices {
  Value* whole = nullptr;
  Node* first = nullptr;
  std::map<int64_t, std::pair<int64_t, Value*>> parts;  // to where they end
};

// All of the value in three parts.
std::optional<Cut> CutBy(const Slices& slices) {
  Cut cut = {slices.whole, {}, slices.first};
  int64_t at = 0;
  for (const auto& [begin, part] : slices.parts) {
    if (begin != at) return std::nullopt;
    at = part.first;
    cut.parts.push_back(part.second);
  }
  const auto& shape = slices.whole->shape();
  const bool all = cut.parts.size() == 3 && shape && shape->back(0).constant() == at;
  return all ? std::optional(cut) : std::nullopt;
}

// By a Split, or by Slices.
std::vector<Cut> CutsOf(const Graph& graph, const SymbolicContents& contents) {
  std::vector<Slices> sliced;  // as the graph has them
  std::map<const Value*, size_t> places;
  for (Node* node : NodesOf(graph)) {
    for (Value* output : node->outputs()) {
      const int rank = output && output->shape() ? output->shape()->rank() : 0;
      const auto part = rank > 0 ? PartOf(*output, rank - 1, contents) : std::nullopt;
      if (!part) continue;
      const auto [place, is_new] = places.emplace(part->whole, sliced.size());
      if (is_new) sliced.push_back({part->whole, node, {}});
      sliced[place->second].parts.emplace(part->begin, std::pair(part->end, output));
    }
  }
  std::vector<Cut> cuts;
  for (const Slices& slices : sliced) {
    if (auto cut = CutBy(slices)) cuts.push_back(*std::move(cut));
  }
  return cuts;
}

// FailedPrecondition saying where the chain ends; NotFound for a cut of other sizes.
class MixingReader {
 public:
  MixingReader(const Cut& cut, const SymbolicContents& contents) : cut_(cut), contents_(contents) {}

  absl::StatusOr<Mixing> Read() {
    PF_RETURN_IF_ERROR(ReadSizes());
    const int64_t m = mixing_.streams;
    if (!Square()) return absl::NotFoundError("the third part is not seen as a square");
    mixing_.pre_moved = MovedOf(*cut_.parts[0], {m});
    mixing_.post_moved = MovedOf(*cut_.parts[1], {m});
    mixing_.comb_moved = MovedOf(*Square(), {m, m});
    const auto opened = OpenedOf(*mixing_.pre_moved.result, "Add"),
               doubled = OpenedOf(*mixing_.post_moved.result, "Mul");
    if (!opened || !doubled) return absl::NotFoundError("no sigmoids");
    mixing_.pre = *opened;
    mixing_.post = *doubled;
    PF_RETURN_IF_ERROR(ReadRounds(*mixing_.comb_moved.result));
    return mixing_;
  }

 private:
  absl::Status ReadSizes() {
    std::vector<int64_t> sizes;
    for (const Value* part : cut_.parts) {
      const auto& of = part ? part->shape() : std::nullopt;
      sizes.push_back(of ? of->back(0).constant().value_or(0) : 0);
    }
    if (sizes[0] < 1 || sizes[1] != sizes[0] || sizes[2] != sizes[0] * sizes[0]) {
      return absl::NotFoundError("parts of other sizes");
    }
    mixing_.logits = cut_.whole;
    if (mixing_.logits->dtype() != DataType::kFloat) return absl::NotFoundError("no floats");
    mixing_.streams = sizes[0];
    return absl::OkStatus();
  }

  // The third part as a square.
  const Value* Square() const {
    const Value& part = *cut_.parts[2];
    const Node* view = OnlyReader(part, "Reshape");
    if (!view) return nullptr;
    const auto& shape = view->output(0)->shape();
    const Shape& flat = *part.shape();
    const Dim streams(mixing_.streams);
    if (!shape || shape->rank() != flat.rank() + 1 || shape->back(0) != streams ||
        shape->back(1) != streams) {
      return nullptr;
    }
    for (int axis = 0; axis + 1 < flat.rank(); ++axis) {
      if (!ProvablyEqual(flat[axis], (*shape)[axis])) return nullptr;
    }
    return view->output(0);
  }

  absl::Status ReadRounds(const Value& scores) {
    const Node* softmax = OnlyReader(scores, "Softmax");
    const int rank = scores.shape() ? scores.shape()->rank() : 0;
    if (!softmax || NormalAxis(IntOr(*softmax, "axis", -1), rank) != rank - 1) {
      return MatchFailure("the mixing matrix is no softmax of rows");
    }
    const Node* sum = OnlyReader(*softmax->output(0), "Add");
    const auto epsilon = sum ? NumberBeside(*sum, *softmax->output(0)) : std::nullopt;
    if (!epsilon || *epsilon != mixing_.pre.number) {
      return MatchFailure("the softmax is not added to ", mixing_.pre.number,
                          ", as what is read by is");
    }
    // Over rows first, then over columns and rows.
    Value* matrix = Balanced(*sum->output(0), 1, *epsilon, contents_);
    while (matrix) {
      mixing_.comb = matrix;
      ++mixing_.rounds;
      const Value* by_rows = Balanced(*matrix, 0, *epsilon, contents_);
      matrix = by_rows ? Balanced(*by_rows, 1, *epsilon, contents_) : nullptr;
    }
    if (mixing_.rounds > 0) return absl::OkStatus();
    return MatchFailure("the mixing matrix is not divided by the sums of columns");
  }

  const Cut& cut_;
  const SymbolicContents& contents_;
  Mixing mixing_;
};

Value* Zeros(Graph& graph, const std::vector<int64_t>& dims) {
  int64_t size = 1;
  for (const int64_t dim : dims) size *= dim;
  return graph.AddInitializer(graph.UniqueName("no_base"),
                              Tensor::Of(dims, std::vector<float>(size)));
}

void Replace(Graph& graph, const Cut& cut, const Mixing& mixing) {
  GraphBuilder builder(graph, cut.first, cut.parts[0]->name());
  std::vector<Value*> scales, bases;
  for (const Moved* moved : {&mixing.pre_moved, &mixing.post_moved, &mixing.comb_moved}) {
    Value* factor = moved->scale ? moved->scale : builder.Float(1);
    scales.push_back(builder.Add("Reshape", {factor, builder.Ints({-1})}));
    Value* added = moved->base ? moved->base : Zeros(graph, moved->dims);
    bases.push_back(builder.Add("Reshape", {added, builder.Ints({-1})}));
  }
  Value* scale = builder.Add("Concat", scales, {{"axis", 0}});
  Value* base = builder.Add("Concat", bases, {{"axis", 0}});
  Node* op = builder.AddNode("pagefuse", "HyperConnectionMix", {mixing.logits, scale, base}, 3);
  op->SetAttribute("streams", MakeAttribute(mixing.streams));
  op->SetAttribute("rounds", MakeAttribute(mixing.rounds));
  op->SetAttribute("epsilon", MakeAttribute(static_cast<float>(mixing.pre.number)));
  op->SetAttribute("post_factor", MakeAttribute(static_cast<float>(mixing.post.number)));
  Value* results[] = {mixing.pre.result, mixing.post.result, mixing.comb};
  for (int i = 0; i < 3; ++i) ReplaceNode(results[i]->producer(), op->output(i));
}

absl::StatusOr<bool> Run(Model& model, PassContext& context) {
  const SymbolicContents& contents = context.contents;
  Graph& graph = *model.graph;
  // What is erased behind a cut are no other cuts.
  bool changed = false;
  for (const Cut& cut : CutsOf(graph, contents)) {
    const absl::StatusOr<Mixing> mixing = MixingReader(cut, contents).Read();
    if (absl::IsNotFound(mixing.status())) continue;
    if (!mixing.ok()) {
      context.AddMissedMatch(kName, NodeLabel(*cut.first), StdView(mixing.status().message()), 4);
      continue;
    }
    Replace(graph, cut, *mixing);
    model.opset_imports["pagefuse"] = 1;
    PF_RETURN_IF_ERROR(context.Rewrote(model, kName));
    changed = true;
  }
  return changed;
}

}  // namespace

std::unique_ptr<Pass> RecogniseHyperConnections() {
  return MakePass(
      kName,
      "Recognises the coefficients by which hyper-connections read, write and mix residual "
      "streams and makes them pagefuse.HyperConnectionMix.",
      Run);
}

}  // namespace pagefuse
