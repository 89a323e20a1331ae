// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/analysis/indexing/index_tensor.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/edit/match_failure.h"

namespace pagefuse {
namespace {

using Kind = IndexSymbol::Kind;

class VectorBuilder {
 public:
  VectorBuilder(GraphBuilder& builder, Layout& layout, const IndexSymbolPtr& axis)
      : builder_(builder), layout_(layout), axis_(axis) {}

  // A vector, or a scalar where nothing depends on the axis.
  absl::StatusOr<Value*> Sum(const IndexExpr& form) {
    PF_ASSIGN_OR_RETURN(Value * sum, layout_.Size(form.constant()));
    bool empty = form.constant().constant() == 0;
    for (const auto& [key, term] : form.terms()) {
      PF_ASSIGN_OR_RETURN(Value * value, Symbol(*term.first));
      if (term.second.constant() != 1) {
        PF_ASSIGN_OR_RETURN(Value * factor, layout_.Size(term.second));
        value = builder_.Add("Mul", {value, factor});
      }
      sum = empty ? value : builder_.Add("Add", {sum, value});
      empty = false;
    }
    return sum;
  }

 private:
  absl::StatusOr<Value*> Symbol(const IndexSymbol& symbol) {
    if (symbol.kind == Kind::kAxis && symbol.key == axis_->key) {
      PF_ASSIGN_OR_RETURN(Value * size, layout_.Size(axis_->extent));
      return builder_.Add("Range", {builder_.Int(0), size, builder_.Int(1)});
    }
    if (symbol.kind == Kind::kLoad) return Load(symbol);
    if (symbol.kind == Kind::kMax || symbol.kind == Kind::kMin) {
      PF_ASSIGN_OR_RETURN(Value * a, Sum(symbol.args[0]));
      PF_ASSIGN_OR_RETURN(Value * b, Sum(symbol.args[1]));
      return builder_.Add(symbol.kind == Kind::kMax ? "Max" : "Min", {a, b});
    }
    if (symbol.kind == Kind::kDiv || symbol.kind == Kind::kMod) {
      PF_ASSIGN_OR_RETURN(Value * x, Sum(symbol.args[0]));
      PF_ASSIGN_OR_RETURN(Value * divisor, layout_.Size(symbol.divisor));
      return builder_.Add(symbol.kind == Kind::kDiv ? "Div" : "Mod", {x, divisor});
    }
    return MatchFailure("index ", symbol.key, " is no element of a tensor");
  }

  absl::StatusOr<Value*> Load(const IndexSymbol& symbol) {
    const Element element{symbol.tensor, symbol.args};
    bool constant = true;
    for (const IndexExpr& at : element.at) constant = constant && at.is_constant();
    AxisSymbols axes;
    if (!constant) axes.push_back(axis_);
    PF_ASSIGN_OR_RETURN(Value * value, layout_.Gathered(element, {axes}));
    return builder_.Cast(value, DataType::kInt64);
  }

  GraphBuilder& builder_;
  Layout& layout_;
  IndexSymbolPtr axis_;
};

}  // namespace

absl::StatusOr<Value*> IndexVector(GraphBuilder& builder, Layout& layout, const IndexExpr& form,
                                   const IndexSymbolPtr& axis) {
  PF_ASSIGN_OR_RETURN(Value * sum, VectorBuilder(builder, layout, axis).Sum(form));
  if (form.Mentions(axis->key)) return sum;
  PF_ASSIGN_OR_RETURN(Value * sizes, layout.Sizes({axis->extent}));
  return builder.Add("Expand", {sum, sizes});
}

}  // namespace pagefuse
