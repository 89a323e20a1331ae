// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/recognise/attention_axes.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/analysis/indexing/factors.h"
#include "pagefuse/passes/analysis/indexing/layout.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/rewrite/pattern.h"
#include "pagefuse/passes/simplify/products/product_rules.h"

namespace pagefuse {
namespace {

constexpr int kMostSteps = 16;  // between a product and its softmax

// The axes of [B, H, S, L]; none where one has length 1.
struct Axes {
  AxisSymbols batch, head, token, key;

  // Those of a tensor that has not all of them.
  std::vector<AxisSymbols> In(const Element& element) const {
    std::vector<AxisSymbols> axes;
    for (const AxisSymbols* axis : {&batch, &head, &token, &key}) {
      const bool has = !axis->empty() && element.Mentions(axis->front());
      axes.push_back(has ? *axis : AxisSymbols());
    }
    return axes;
  }
};

class AxesFormer {
 public:
  AxesFormer(Graph& graph, Node* sum, const SymbolicContents& contents)
      : graph_(graph), sum_(sum), reader_(contents), builder_(graph, sum, sum->output(0)->name()) {}

  // True if the result is computed anew.
  bool Run() {
    if (!ReadSum() || !ReadAxes()) return false;
    const Node* before = Before();
    const size_t constants = graph_.initializers().size();
    const absl::StatusOr<Value*> result = Write();
    if (!result.ok()) {
      EraseBehind(before, constants);
      return false;
    }
    ReplaceNode(sum_, *result);
    return true;
  }

 private:
  // The places of the result, each of which is a place of the probabilities and a channel.
  bool ReadSum() {
    const auto places = reader_.Places(sum_->output(0));
    const auto product = places.ok() ? ProductOf(reader_, *places) : std::nullopt;
    if (!product) return false;
    const Element weights = reader_.Source(product->left);
    if (!weights.From("Softmax") || !weights.value->shape()) return false;
    const int rank = weights.value->shape()->rank();
    if (NormalAxis(IntOr(*weights.producer(), "axis", -1), rank) != rank - 1) return false;
    if (rank == 4 && sum_->input(0) == weights.value) return false;  // in form
    // Places of the softmax itself: what the result has on one axis may be two of them.
    const auto own = reader_.Places(weights.value);
    if (!own.ok()) return false;
    weights_ = *own;
    result_ = *places;
    for (IndexExpr& index : result_.at) {
      const IndexSymbolPtr axis = index.symbol();
      if (axis && weights.Mentions(axis)) index = InOwn(axis, weights);
    }
    sum_of_ = ProductOf(reader_, result_);
    if (!sum_of_ || !weights_.at.back().symbol()) return false;
    weights_.at.back() = IndexExpr::Of(sum_of_->summed);
    return reader_.Source(sum_of_->left).Key() == weights_.Key();
  }

  // An axis of the result by those of the softmax: the same, or its quotient and remainder.
  IndexExpr InOwn(const IndexSymbolPtr& axis, const Element& weights) const {
    IndexExpr sum;
    for (size_t i = 0; i < weights.at.size(); ++i) {
      const IndexSymbolPtr digit = weights.at[i].symbol();
      if (!digit) continue;
      if (digit->key == axis->key) return weights_.at[i];
      const bool of_axis = !digit->args.empty() && digit->args[0].Key() == axis->key;
      if (of_axis && digit->kind == IndexSymbol::Kind::kDiv) {
        sum = sum + weights_.at[i].Times(digit->divisor);
      } else if (of_axis && digit->kind == IndexSymbol::Kind::kMod) {
        sum = sum + weights_.at[i];
      }
    }
    return sum;
  }

  // Which axis of the softmax is which: keys have that of sequences, and that of heads if each has its
  // own; of the others, and of these, heads are as many as a number says.
  bool ReadAxes() {
    const auto product = FindProduct(reader_.Operand(weights_, 0), kMostSteps);
    if (!product) return false;
    const IndexSymbolPtr& key = sum_of_->summed;
    const bool left_is_key = product->left.Mentions(key);
    key_ = left_is_key ? product->left : product->right;
    query_ = left_is_key ? product->right : product->left;
    channel_ = product->summed;
    axes_.key = {key};
    AxisSymbols of_keys, of_queries;
    for (size_t i = 0; i + 1 < weights_.at.size(); ++i) {
      const IndexSymbolPtr axis = weights_.at[i].symbol();
      if (axis) (key_.Mentions(axis) ? of_keys : of_queries).push_back(axis);
    }
    const auto take_head = [this](AxisSymbols& axes) {
      const auto head = std::ranges::find_if(
          axes, [](const IndexSymbolPtr& axis) { return axis->extent.is_constant(); });
      if (head == axes.end() || !axes_.head.empty()) return;
      axes_.head = {*head};
      axes.erase(head);
    };
    if (of_queries.size() > 1) take_head(of_queries);
    if (of_keys.size() > 1) take_head(of_keys);
    if (of_queries.size() != 1 || of_keys.size() > 1 || query_.Mentions(key)) return false;
    axes_.token = of_queries;
    axes_.batch = of_keys;
    value_ = sum_of_->right;
    d_ = result_.at.back().symbol();
    return d_ && !value_.Mentions(axes_.token[0]) && key_.Mentions(key);
  }

  // The product of two tensors that scores are computed from, element by element.
  std::optional<SummedProduct> FindProduct(const Element& scores, int steps) {
    const Element source = reader_.Source(scores);
    if (!source.producer() || steps == 0) return std::nullopt;
    if (source.From("MatMul")) return ProductOf(reader_, source);
    if (!IsElementwiseOp(*source.producer())) return std::nullopt;
    for (int i = 0; i < source.producer()->num_inputs(); ++i) {
      if (!source.producer()->input(i)) continue;
      if (auto product = FindProduct(reader_.Operand(source, i), steps - 1)) return product;
    }
    return std::nullopt;
  }

  absl::StatusOr<Value*> Write() {
    PF_ASSIGN_OR_RETURN(Value * scores, Scores(reader_.Operand(weights_, 0)));
    const Node* softmax = weights_.producer();
    Node* weights = builder_.AddNode("", "Softmax", {scores}, 1, {{"axis", -1}});
    weights->name = softmax->name;
    std::vector<AxisSymbols> axes = KeyAxes(value_);
    axes[3] = {d_};
    PF_ASSIGN_OR_RETURN(Value * values, Gathered(value_, axes));
    Node* sum = builder_.AddNode("", "MatMul", {weights->output(0), values}, 1);
    sum->name = sum_->name;
    return LayoutBeside(value_.value)
        .Spread(sum->output(0), {axes_.batch, axes_.head, axes_.token, {d_}}, result_);
  }

  // Sizes are read off what takes part.
  Layout LayoutBeside(Value* value) {
    return Layout(builder_, {value, query_.value, key_.value, value_.value, weights_.value});
  }

  absl::StatusOr<Value*> Gathered(const Element& element, const std::vector<AxisSymbols>& axes) {
    return LayoutBeside(element.value).GatheredPart(element, axes);
  }

  // [B, H or 1, L, .] of keys or values.
  std::vector<AxisSymbols> KeyAxes(const Element& rows) const {
    std::vector<AxisSymbols> axes = axes_.In(rows);
    return {axes[0], axes[1], axes_.key, {}};
  }

  // The same scores in the form.
  absl::StatusOr<Value*> Scores(const Element& scores) {
    const Element source = reader_.Source(scores);
    const Node& node = *source.producer();
    if (node.Is("MatMul")) return QueryByKey();
    std::vector<Value*> operands;
    bool found = false;
    for (int i = 0; i < node.num_inputs(); ++i) {
      Value* operand = node.input(i);
      const Element element = reader_.Operand(source, i);
      if (!found && FindProduct(element, kMostSteps)) {
        found = true;
        PF_ASSIGN_OR_RETURN(operand, Scores(element));
      } else if (operand && operand->shape() && !operand->shape()->empty()) {
        PF_ASSIGN_OR_RETURN(operand, Gathered(element, axes_.In(element)));
      }
      operands.push_back(operand);
    }
    Node* copy = builder_.AddNode(node.domain(), node.op_type(), std::move(operands), 1, node);
    copy->name = node.name;
    return copy->output(0);
  }

  absl::StatusOr<Value*> QueryByKey() {
    std::vector<AxisSymbols> axes = axes_.In(query_);
    axes[3] = {channel_};
    PF_ASSIGN_OR_RETURN(Value * query, Gathered(query_, axes));
    axes = KeyAxes(key_);
    axes[3] = {channel_};
    PF_ASSIGN_OR_RETURN(Value * key, Gathered(key_, axes));
    Value* columns = builder_.Add("Transpose", {key}, {{"perm", std::vector<int64_t>{0, 1, 3, 2}}});
    return builder_.Add("MatMul", {query, columns});
  }

  // The node before the sum; null if it is the first.
  const Node* Before() const {
    const Node* before = nullptr;
    for (const auto& node : graph_.nodes()) {
      if (node.get() == sum_) break;
      before = node.get();
    }
    return before;
  }

  // What was written behind that node, and constants behind so many.
  void EraseBehind(const Node* before, size_t constants) {
    std::vector<Node*> written;
    bool behind = before == nullptr;
    for (const auto& node : graph_.nodes()) {
      if (node.get() == sum_) break;
      if (behind) written.push_back(node.get());
      behind = behind || node.get() == before;
    }
    for (auto node = written.rbegin(); node != written.rend(); ++node) graph_.EraseNode(*node);
    const std::vector<Value*> all = graph_.initializers();
    for (size_t i = constants; i < all.size(); ++i) graph_.EraseValue(all[i]);
  }

  Graph& graph_;
  Node* sum_;
  IndexingAnalysis reader_;
  GraphBuilder builder_;
  Element result_, weights_, query_, key_, value_;
  std::optional<SummedProduct> sum_of_;
  IndexSymbolPtr channel_, d_;
  Axes axes_;
};

// Whether the weights of a product are a softmax behind a few nodes that move them.
bool SumsBySoftmax(const Node& product) {
  const Value* weights = product.input(0);
  for (int step = 0; step < kMostSteps && weights->producer(); ++step) {
    const Node& node = *weights->producer();
    if (node.Is("Softmax")) return step > 0 || !weights->shape() || weights->shape()->rank() != 4;
    if (!IsViewNode(node) && !node.Is("Transpose") && !node.Is("Identity")) return false;
    weights = node.input(0);
  }
  return false;
}

}  // namespace

bool BringAxesToForm(Graph& graph, Node* node, const SymbolicContents& contents) {
  if (!node->Is("MatMul") || !SumsBySoftmax(*node)) return false;
  return AxesFormer(graph, node, contents).Run();
}

}  // namespace pagefuse
