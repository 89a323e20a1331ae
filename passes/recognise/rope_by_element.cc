// rope-by-element: pairs of channels that are rotated, written out, become RotaryEmbedding.
//
//   y = x * c + t * s,  t[lo(i)] = -x[hi(i)], t[hi(i)] = x[lo(i)],  c[lo(i)] = c[hi(i)] = cos[i], s alike
//     =>  RotaryEmbedding (x, cos, sin)
//
// lo(i), hi(i) are 2i, 2i + 1 (interleaved = 1) or i, i + R/2. Turned pairs and widened tables are
// read by element, so that it does not matter how they are made (DeepSeek-V4 exports stack and tile
// them) or scaled. Heads stand before tokens, [B, H, S, R], or behind them, [B, S, H, R], as in the
// indexer of DeepSeek-V3.2: the tables tell. Where x is a part of the channels of heads, the others
// pass beside it as exported. The op takes tables of each sequence and token; those that are the
// same for all sequences are repeated.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/ops/registry.h"
#include "pagefuse/passes/graph_builder.h"
#include "pagefuse/passes/graph_edit.h"
#include "pagefuse/passes/recognise/recognise.h"
#include "pagefuse/passes/words/arrange.h"
#include "pagefuse/passes/words/element.h"

namespace pagefuse {
namespace {

constexpr std::string_view kName = "rope-by-element";
constexpr int kRank = 4;  // [B, H, S, R] or [B, S, H, R]
constexpr int kChannels = 3;

// One reading of y = x * c + t * s.
struct Terms {
  Value* x = nullptr;
  Value* cos = nullptr;  // widened
  Value* turned = nullptr;
  Value* sin = nullptr;  // widened
};

// y as a sum of two products, in every order of their factors; empty if it is none.
std::vector<Terms> TermsOf(const Node& sum) {
  const auto& shape = sum.output(0) ? sum.output(0)->shape() : std::nullopt;
  if (!sum.Is("Add") || !shape || shape->rank() != kRank) return {};
  if (shape->back(0).constant().value_or(1) % 2 != 0) return {};
  const Node* products[] = {sum.input(0)->producer(), sum.input(1)->producer()};
  for (const Node* product : products) {
    if (!product || !product->Is("Mul")) return {};
  }
  std::vector<Terms> orders;
  for (int straight : {0, 1}) {
    const Node& a = *products[straight];
    const Node& b = *products[1 - straight];
    for (int x : {0, 1}) {
      for (int turned : {0, 1}) {
        orders.push_back({a.input(x), a.input(1 - x), b.input(turned), b.input(1 - turned)});
      }
    }
  }
  return orders;
}

// A table [B or 1, S, R/2], whether all sequences share it, and the axis of x that is S.
struct Table {
  Element row;
  bool shared = false;
  int tokens = 2;
};
struct Rotation {
  Value* x = nullptr;
  Table cos, sin;
  bool interleaved = true;
  bool heads_are_behind() const { return cos.tokens == 1; }
};

class RotationReader {
 public:
  RotationReader(const Shape& shape, const SymbolicContents& contents)
      : shape_(shape), reader_(contents) {
    for (int axis = 0; axis < kChannels; ++axis) {
      at_.push_back(shape[axis] == Dim(1) ? IndexForm()
                                          : IndexForm::Of(reader_.NewAxis(shape[axis])));
    }
    pair_ = reader_.NewAxis(Dim(*shape.back(0).constant() / 2));
    // An axis of length 1 is read at 0.
    if (pair_->extent != Dim(1)) {
      pair_at_ = IndexForm::Of(pair_);
      pairs_ = {pair_};
    }
  }

  // Nullopt if the terms are no rotation of pairs.
  std::optional<Rotation> Read(const Terms& terms) {
    const bool fits = terms.x->shape() && ProvablyEqual(*terms.x->shape(), shape_) &&
                      terms.turned->shape() && ProvablyEqual(*terms.turned->shape(), shape_);
    if (!fits) return std::nullopt;
    for (const bool interleaved : {true, false}) {
      interleaved_ = interleaved;
      if (!IsTurned(terms)) continue;
      const auto cos = ReadTable(terms.cos), sin = ReadTable(terms.sin);
      if (!cos || !sin || cos->tokens != sin->tokens) return std::nullopt;
      return Rotation{terms.x, *cos, *sin, interleaved};
    }
    return std::nullopt;
  }

  // The table as the op takes it, built before the sum.
  absl::StatusOr<Value*> Arranged(GraphBuilder& builder, const Table& table, Value* x) {
    Arranger arranger(builder, {table.row.value, x});
    const auto axis = [&](int i) {
      const AtomPtr atom = at_[i].atom();
      return atom ? AxisAtoms{atom} : AxisAtoms{};
    };
    const AxisAtoms tokens = axis(table.tokens);
    if (!table.shared) return arranger.GatheredPart(table.row, {axis(0), tokens, pairs_});
    PF_ASSIGN_OR_RETURN(Value * once, arranger.GatheredPart(table.row, {{}, tokens, pairs_}));
    PF_ASSIGN_OR_RETURN(Value * sizes, arranger.Sizes({shape_[0], Dim(1), Dim(1)}));
    return builder.Add("Expand", {once, sizes});
  }

 private:
  // The element of a value that is broadcast to the shape, at one channel of the pair.
  Element At(Value* value, int channel) {
    const auto& shape = value->shape();
    Element element{value, {}};
    if (!shape || shape->rank() > kRank) return element;
    std::vector<IndexForm> at = at_;
    at.push_back(interleaved_ ? pair_at_.Times(Dim(2)) + IndexForm(channel)
                              : pair_at_ + IndexForm(channel * *pair_->extent.constant()));
    element.at.assign(at.end() - shape->rank(), at.end());
    for (int axis = 0; axis < shape->rank(); ++axis) {
      if ((*shape)[axis] == Dim(1)) element.at[axis] = IndexForm();
    }
    return reader_.Source(element);
  }

  // (-x[hi], x[lo])
  bool IsTurned(const Terms& terms) {
    const Element first = At(terms.turned, 0), second = At(terms.turned, 1);
    return first.From("Neg") && second.Key() == At(terms.x, 0).Key() &&
           reader_.Operand(first, 0).Key() == At(terms.x, 1).Key();
  }

  // Whether both are computed of the same numbers by the same elementwise nodes.
  bool AreSame(const Element& a, const Element& b) {
    if (a.Key() == b.Key()) return true;
    const Node* node = a.producer();
    if (a.value != b.value || !IsElementwise(node)) return false;
    for (int i = 0; i < node->num_inputs(); ++i) {
      if (!AreSame(reader_.Operand(a, i), reader_.Operand(b, i))) return false;
    }
    return true;
  }

  static bool IsElementwise(const Node* node) {
    if (!node || !node->domain().empty()) return false;
    const OpDef* op = OpRegistry::Global().Find("", node->op_type(), INT64_MAX);
    return op && op->is_elementwise();
  }

  // The same number for both channels of a pair and all heads.
  std::optional<Table> ReadTable(Value* value) {
    const Element first = At(value, 0), second = At(value, 1);
    if (first.at.empty() || !AreSame(first, second)) return std::nullopt;
    const auto mentions = [&](int axis) {
      const AtomPtr atom = at_[axis].atom();
      return atom && std::any_of(first.at.begin(), first.at.end(),
                                 [&](const IndexForm& at) { return at.Mentions(atom->key); });
    };
    if (mentions(1) && mentions(2)) return std::nullopt;
    return Table{first, at_[0].atom() != nullptr && !mentions(0), mentions(1) ? 1 : 2};
  }

  const Shape& shape_;
  ElementReader reader_;
  std::vector<IndexForm> at_;  // of the axes before the channels
  AtomPtr pair_;
  IndexForm pair_at_;
  AxisAtoms pairs_;
  bool interleaved_ = true;
};

class RopeByElement : public Pass {
 public:
  std::string_view name() const override { return kName; }
  std::string_view description() const override {
    return "Recognises rotary embedding by which channels are turned into which.";
  }

  absl::StatusOr<bool> Run(Model& model, PassContext& context) const override {
    SymbolicContents contents;
    PF_RETURN_IF_ERROR(InferShapes(model, &contents));
    Graph& graph = *model.graph;
    std::vector<Node*> sums = NodesOf(graph);
    std::erase_if(sums, [](const Node* node) { return TermsOf(*node).empty(); });
    bool changed = false;
    for (Node* sum : sums) {
      const Shape shape = *sum->output(0)->shape();
      if (!shape.back(0).constant()) continue;
      RotationReader reader(shape, contents);
      for (const Terms& terms : TermsOf(*sum)) {
        const auto rotation = reader.Read(terms);
        if (!rotation || (rotation->heads_are_behind() && !shape[2].constant())) continue;
        PF_ASSIGN_OR_RETURN(const bool replaced, Replace(graph, sum, *rotation, reader, context));
        if (replaced) PF_RETURN_IF_ERROR(context.Rewrote(model, kName));
        changed = changed || replaced;
        break;
      }
    }
    return changed;
  }

 private:
  static absl::StatusOr<bool> Replace(Graph& graph, Node* sum, const Rotation& rotation,
                                      RotationReader& reader, PassContext& context) {
    GraphBuilder builder(graph, sum, sum->output(0)->name());
    const auto cos = reader.Arranged(builder, rotation.cos, rotation.x);
    const auto sin = reader.Arranged(builder, rotation.sin, rotation.x);
    for (const auto* table : {&cos, &sin}) {
      if (table->ok()) continue;
      context.AddMiss(kName, NodeLabel(*sum), StdView(table->status().message()), 3);
      return false;
    }
    graph.ReplaceAllUses(sum->output(0), Rotated(builder, rotation, *cos, *sin));
    graph.EraseIfDead(sum);
    return true;
  }

  // The op takes heads behind tokens side by side, in rows [B, S, H * R].
  static Value* Rotated(GraphBuilder& builder, const Rotation& rotation, Value* cos, Value* sin) {
    Value* x = rotation.x;
    const Shape& shape = *x->shape();
    const int64_t heads = shape[2].constant().value_or(0), size = *shape.back(0).constant();
    const bool beside = rotation.heads_are_behind();
    if (beside) x = builder.Add("Reshape", {x, builder.Ints({0, 0, heads * size})});
    Node* rope = builder.AddNode("", "RotaryEmbedding", {x, cos, sin}, 1);
    rope->SetAttribute("interleaved", MakeAttribute(int64_t{rotation.interleaved}));
    if (!beside) return rope->output(0);
    rope->SetAttribute("num_heads", MakeAttribute(heads));
    return builder.Add("Reshape", {rope->output(0), builder.Ints({0, 0, heads, size})});
  }
};

}  // namespace

std::unique_ptr<Pass> RecogniseRopeByElement() { return std::make_unique<RopeByElement>(); }

}  // namespace pagefuse
