#include "pagefuse/passes/words/index_tensor.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/refused.h"

namespace pagefuse {
namespace {

using Kind = IndexAtom::Kind;

class VectorBuilder {
 public:
  VectorBuilder(GraphBuilder& builder, Arranger& arranger, const AtomPtr& axis)
      : builder_(builder), arranger_(arranger), axis_(axis) {}

  // A vector, or a scalar where nothing depends on the axis.
  absl::StatusOr<Value*> Sum(const IndexForm& form) {
    PF_ASSIGN_OR_RETURN(Value * sum, arranger_.Size(form.constant()));
    bool empty = form.constant().constant() == 0;
    for (const auto& [key, term] : form.terms()) {
      PF_ASSIGN_OR_RETURN(Value * value, Atom(*term.first));
      if (term.second.constant() != 1) {
        PF_ASSIGN_OR_RETURN(Value * factor, arranger_.Size(term.second));
        value = builder_.Add("Mul", {value, factor});
      }
      sum = empty ? value : builder_.Add("Add", {sum, value});
      empty = false;
    }
    return sum;
  }

 private:
  absl::StatusOr<Value*> Atom(const IndexAtom& atom) {
    if (atom.kind == Kind::kAxis && atom.key == axis_->key) {
      PF_ASSIGN_OR_RETURN(Value * size, arranger_.Size(axis_->extent));
      return builder_.Add("Range", {builder_.Int(0), size, builder_.Int(1)});
    }
    if (atom.kind == Kind::kLoad) return Load(atom);
    if (atom.kind == Kind::kMax || atom.kind == Kind::kMin) {
      PF_ASSIGN_OR_RETURN(Value * a, Sum(atom.args[0]));
      PF_ASSIGN_OR_RETURN(Value * b, Sum(atom.args[1]));
      return builder_.Add(atom.kind == Kind::kMax ? "Max" : "Min", {a, b});
    }
    if (atom.kind == Kind::kDiv || atom.kind == Kind::kMod) {
      PF_ASSIGN_OR_RETURN(Value * x, Sum(atom.args[0]));
      PF_ASSIGN_OR_RETURN(Value * divisor, arranger_.Size(atom.divisor));
      return builder_.Add(atom.kind == Kind::kDiv ? "Div" : "Mod", {x, divisor});
    }
    return Refused("index ", atom.key, " is no element of a tensor");
  }

  absl::StatusOr<Value*> Load(const IndexAtom& atom) {
    const Element element{atom.tensor, atom.args};
    bool constant = true;
    for (const IndexForm& at : element.at) constant = constant && at.is_constant();
    AxisAtoms axes;
    if (!constant) axes.push_back(axis_);
    PF_ASSIGN_OR_RETURN(Value * value, arranger_.Gathered(element, {axes}));
    return builder_.Add("Cast", {value}, "to", static_cast<int64_t>(DataType::kInt64));
  }

  GraphBuilder& builder_;
  Arranger& arranger_;
  AtomPtr axis_;
};

}  // namespace

absl::StatusOr<Value*> IndexVector(GraphBuilder& builder, Arranger& arranger, const IndexForm& form,
                                   const AtomPtr& axis) {
  PF_ASSIGN_OR_RETURN(Value * sum, VectorBuilder(builder, arranger, axis).Sum(form));
  if (form.Mentions(axis->key)) return sum;
  PF_ASSIGN_OR_RETURN(Value * sizes, arranger.Sizes({axis->extent}));
  return builder.Add("Expand", {sum, sizes});
}

}  // namespace pagefuse
