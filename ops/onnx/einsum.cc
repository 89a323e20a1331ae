// SPDX-License-Identifier: Apache-2.0
// Einsum: sums of products over named axes.
#include <algorithm>
#include <cctype>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/onnx/element.h"
#include "pagefuse/ops/onnx/movement.h"
#include "pagefuse/ops/onnx/product.h"
#include "pagefuse/ops/onnx/reduce_math.h"
#include "pagefuse/ops/schema/op_def.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse::onnx_ops {
namespace {

constexpr char kEllipsis = '.';

// Labels of one term: letters, and one kEllipsis at most.
using Term = std::string;

struct Equation {
  std::vector<Term> inputs;
  Term output;
};

absl::Status Wrong(const Node& node, std::string_view what) {
  return AttributeError(node, "equation", what);
}

absl::StatusOr<Term> ParseTerm(const Node& node, std::string_view text) {
  Term term;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == ' ') continue;
    if (std::isalpha(static_cast<unsigned char>(c)) != 0) {
      term += c;
      continue;
    }
    if (text.substr(i, 3) != "..." || term.find(kEllipsis) != Term::npos) {
      return Wrong(node, StrCat("\"", text, "\" is no list of letters with at most one \"...\""));
    }
    term += kEllipsis;
    i += 2;
  }
  return term;
}

// Without an arrow the output has the ellipsis, then the labels that occur once, in order.
Term ImplicitOutput(const std::vector<Term>& inputs) {
  std::map<char, int> counts;
  for (const Term& term : inputs) {
    for (char label : term) ++counts[label];
  }
  Term output;
  if (counts.erase(kEllipsis) > 0) output += kEllipsis;
  for (const auto& [label, count] : counts) {
    if (count == 1) output += label;
  }
  return output;
}

absl::StatusOr<Equation> ParseEquation(const Node& node) {
  PF_ASSIGN_OR_RETURN(const std::string text, node.StringAttribute("equation", ""));
  const std::string_view whole = text;
  const size_t arrow = whole.find("->");
  std::string_view left = whole.substr(0, arrow);
  Equation equation;
  while (true) {
    const size_t comma = left.find(',');
    PF_ASSIGN_OR_RETURN(Term term, ParseTerm(node, left.substr(0, comma)));
    equation.inputs.push_back(std::move(term));
    if (comma == std::string_view::npos) break;
    left.remove_prefix(comma + 1);
  }
  if (arrow == std::string_view::npos) {
    equation.output = ImplicitOutput(equation.inputs);
  } else {
    PF_ASSIGN_OR_RETURN(equation.output, ParseTerm(node, whole.substr(arrow + 2)));
  }
  if (static_cast<int>(equation.inputs.size()) != node.num_inputs()) {
    return Wrong(
        node, StrCat("has ", equation.inputs.size(), " terms for ", node.num_inputs(), " inputs"));
  }
  for (char label : equation.output) {
    const bool known = std::ranges::any_of(
        equation.inputs, [&](const Term& term) { return term.find(label) != Term::npos; });
    if (!known || std::ranges::count(equation.output, label) != 1) {
      return Wrong(node, StrCat("output label '", std::string(1, label),
                                "' must be one of the inputs', once"));
    }
  }
  return equation;
}

// The axes that an ellipsis stands for are labels of their own: code -1 is the last of them, -2 the
// one before it. Letters are their own code.
using Labels = std::vector<int>;

absl::StatusOr<Labels> Expand(const Node& node, const Term& term, int rank) {
  const int letters =
      static_cast<int>(std::ranges::count_if(term, [](char label) { return label != kEllipsis; }));
  const bool exact = letters == static_cast<int>(term.size());
  if (letters > rank || (exact && letters != rank)) {
    return Wrong(node, StrCat("\"", term, "\" does not fit rank ", rank));
  }
  Labels labels;
  for (char label : term) {
    if (label != kEllipsis) labels.push_back(label);
    for (int i = rank - letters; label == kEllipsis && i > 0; --i) labels.push_back(-i);
  }
  return labels;
}

struct EinsumPlan {
  std::vector<Labels> inputs;
  Labels output;
};

// `ranks` of the inputs.
absl::StatusOr<EinsumPlan> PlanOf(const Node& node, const std::vector<int>& ranks) {
  PF_ASSIGN_OR_RETURN(const Equation equation, ParseEquation(node));
  EinsumPlan plan;
  int spread = 0;  // axes of the longest ellipsis
  for (size_t i = 0; i < ranks.size(); ++i) {
    PF_ASSIGN_OR_RETURN(Labels labels, Expand(node, equation.inputs[i], ranks[i]));
    for (int label : labels) spread = std::max(spread, -label);
    plan.inputs.push_back(std::move(labels));
  }
  const bool has_ellipsis = equation.output.find(kEllipsis) != Term::npos;
  const int letters = static_cast<int>(equation.output.size()) - (has_ellipsis ? 1 : 0);
  PF_ASSIGN_OR_RETURN(plan.output,
                      Expand(node, equation.output, letters + (has_ellipsis ? spread : 0)));
  return plan;
}

absl::Status InferEinsum(ShapeContext& c) {
  std::vector<int> ranks;
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (c.input_shape(i) == nullptr) {
      PF_RETURN_IF_ERROR(ParseEquation(c.node()).status());
      c.SetOutput(0, c.input_type(0), std::nullopt);
      return absl::OkStatus();
    }
    ranks.push_back(c.input_shape(i)->rank());
  }
  PF_ASSIGN_OR_RETURN(const EinsumPlan plan, PlanOf(c.node(), ranks));
  std::map<int, Dim> dims;
  for (int i = 0; i < c.num_inputs(); ++i) {
    for (int axis = 0; axis < ranks[i]; ++axis) {
      const int label = plan.inputs[i][axis];
      const Dim& dim = (*c.input_shape(i))[axis];
      const auto [it, added] = dims.emplace(label, dim);
      if (added || dim == Dim(1)) continue;
      Dim& known = it->second;
      if (Differ(known, dim) && known != Dim(1)) {
        return c.InputError(i, StrCat("axis ", axis, " is ", dim.ToString(), ", expected ",
                                      known.ToString(), " as its label has elsewhere"));
      }
      if (!known.is_constant() || known == Dim(1)) known = dim;
    }
  }
  std::vector<Dim> out;
  for (int label : plan.output) out.push_back(dims[label]);
  c.SetOutput(0, c.input_type(0), Shape(std::move(out)));
  return absl::OkStatus();
}

// The loop nest: output axes first, then those that are summed over.
struct Loops {
  std::vector<int64_t> dims;
  std::vector<std::vector<int64_t>> strides;  // [input][loop]
  size_t outputs = 0;                         // loops over output axes
};

Loops LoopsOf(const KernelArgs& args, const EinsumPlan& plan) {
  Labels order = plan.output;
  for (const Labels& labels : plan.inputs) {
    for (int label : labels) {
      if (std::ranges::find(order, label) == order.end()) order.push_back(label);
    }
  }
  Loops loops;
  loops.outputs = plan.output.size();
  loops.dims.assign(order.size(), 1);
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    std::vector<int64_t> strides(order.size(), 0);
    int64_t stride = 1;
    for (size_t axis = plan.inputs[i].size(); axis-- > 0;) {
      const int64_t dim = args.inputs[i].dims[axis];
      const size_t loop = std::ranges::find(order, plan.inputs[i][axis]) - order.begin();
      // A label that a term repeats walks its diagonal; a dim of 1 is repeated.
      if (dim != 1) {
        strides[loop] += stride;
        loops.dims[loop] = dim;
      }
      stride *= dim;
    }
    loops.strides.push_back(std::move(strides));
  }
  return loops;
}

// An odometer over loops [begin, end) that keeps the offsets into the inputs.
class Walk {
 public:
  Walk(const Loops& loops, size_t begin, size_t end)
      : loops_(loops), begin_(begin), end_(end), index_(loops.dims.size()) {}

  void SeekTo(int64_t point, std::vector<int64_t>& offsets) {
    for (size_t loop = end_; loop-- > begin_;) {
      index_[loop] = point % loops_.dims[loop];
      point /= loops_.dims[loop];
      for (size_t i = 0; i < offsets.size(); ++i) {
        offsets[i] += index_[loop] * loops_.strides[i][loop];
      }
    }
  }
  void Next(std::vector<int64_t>& offsets) {
    for (size_t loop = end_; loop-- > begin_;) {
      const bool wraps = ++index_[loop] == loops_.dims[loop];
      const int64_t steps = wraps ? 1 - loops_.dims[loop] : 1;
      for (size_t i = 0; i < offsets.size(); ++i) {
        offsets[i] += steps * loops_.strides[i][loop];
      }
      if (!wraps) return;
      index_[loop] = 0;
    }
  }
  int64_t size() const {
    int64_t size = 1;
    for (size_t loop = begin_; loop < end_; ++loop) size *= loops_.dims[loop];
    return size;
  }

 private:
  const Loops& loops_;
  size_t begin_, end_;
  std::vector<int64_t> index_;
};

// The product of the inputs' elements at the offsets.
template <typename T>
Accumulator<Compute<T>> ProductAt(const KernelArgs& args, const std::vector<int64_t>& offsets) {
  using Sum = Accumulator<Compute<T>>;
  Sum product = 1;
  for (size_t i = 0; i < offsets.size(); ++i) {
    const T* input = args.inputs[i].template as<T>();
    product = kMul(product, static_cast<Sum>(Load(input[offsets[i]])));
  }
  return product;
}

template <typename T>
void EinsumTyped(const KernelArgs& args, const Loops& loops) {
  using Sum = Accumulator<Compute<T>>;
  const int64_t sum_size = Walk(loops, loops.outputs, loops.dims.size()).size();
  ParallelFor(args.output(0).size(), sum_size + 1, [&](int64_t begin, int64_t end) {
    std::vector<int64_t> offsets(args.inputs.size());
    Walk outer(loops, 0, loops.outputs);
    outer.SeekTo(begin, offsets);
    for (int64_t point = begin; point < end; ++point, outer.Next(offsets)) {
      std::vector<int64_t> at = offsets;
      Walk inner(loops, loops.outputs, loops.dims.size());
      Sum sum = 0;
      for (int64_t k = 0; k < sum_size; ++k, inner.Next(at)) {
        sum = kAdd(sum, ProductAt<T>(args, at));
      }
      args.output(0).template as<T>()[point] = Store<T>(static_cast<Compute<T>>(sum));
    }
  });
}

absl::StatusOr<Loops> LoopsOf(const KernelArgs& args) {
  std::vector<int> ranks;
  for (const TensorArg& input : args.inputs) ranks.push_back(static_cast<int>(input.dims.size()));
  PF_ASSIGN_OR_RETURN(const EinsumPlan plan, PlanOf(*args.node, ranks));
  return LoopsOf(args, plan);
}

absl::Status RunEinsum(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Loops loops, LoopsOf(args));
  return Dispatch(Numbers(), args.input(0).dtype,
                  [&]<typename T>() { EinsumTyped<T>(args, loops); });
}

// What the loops of two float inputs are to the product [batch, m, k] by [batch, n, k].
struct ProductLoops {
  std::vector<size_t> batch, m, n, k;
};

// Nullopt where a loop sums over one input alone, or dims are 0.
std::optional<ProductLoops> ProductLoopsOf(const Loops& loops) {
  ProductLoops roles;
  if (loops.strides.size() != 2) return std::nullopt;
  for (size_t loop = 0; loop < loops.dims.size(); ++loop) {
    if (loops.dims[loop] == 0) return std::nullopt;
    if (loops.dims[loop] == 1) continue;
    const bool left = loops.strides[0][loop] != 0, right = loops.strides[1][loop] != 0;
    const bool kept = loop < loops.outputs;
    if (!kept && !(left && right)) return std::nullopt;
    (!kept ? roles.k : !right ? roles.m : !left ? roles.n : roles.batch).push_back(loop);
  }
  return roles;
}

// The box over these loops, dense on the side of the product.
StridedBox BoxOf(const Loops& loops, const std::vector<int64_t>& strides,
                 std::initializer_list<const std::vector<size_t>*> roles) {
  StridedBox box;
  for (const std::vector<size_t>* role : roles) {
    for (size_t loop : *role) {
      box.dims.push_back(loops.dims[loop]);
      box.from_strides.push_back(strides[loop]);
    }
  }
  box.to_strides = RowMajorStrides(box.dims);
  return box;
}

int64_t CountOf(const Loops& loops, const std::vector<size_t>& role) {
  int64_t count = 1;
  for (size_t loop : role) count *= loops.dims[loop];
  return count;
}

// The operand's elements in the box's order: where they lie, or gathered in `slot`.
void* Gathered(const KernelArgs& args, const TensorArg& x, const StridedBox& box, int slot) {
  if (box.from_strides == box.to_strides) return x.data;
  const int64_t size = Product(box.dims, 0, box.dims.size());
  void* to = args.scratch->Get(static_cast<size_t>(size) * sizeof(float), slot);
  CopyBox(box, sizeof(float), x.data, to);
  return to;
}

absl::Status RunProduct(KernelArgs& args, const Loops& loops, const ProductLoops& roles) {
  const int64_t batch = CountOf(loops, roles.batch), m = CountOf(loops, roles.m);
  const int64_t n = CountOf(loops, roles.n), k = CountOf(loops, roles.k);
  KernelArgs product;
  // The right side in whichever order keeps its rows whole.
  bool transposed = false;
  for (size_t loop : roles.k) transposed = transposed || loops.strides[1][loop] == 1;
  const StridedBox left = BoxOf(loops, loops.strides[0], {&roles.batch, &roles.m, &roles.k});
  const auto& [rows, columns] =
      transposed ? std::tie(roles.n, roles.k) : std::tie(roles.k, roles.n);
  const StridedBox right = BoxOf(loops, loops.strides[1], {&roles.batch, &rows, &columns});
  product.inputs = {{DataType::kFloat, {batch, m, k}, Gathered(args, args.input(0), left, 1)},
                    {DataType::kFloat,
                     {batch, CountOf(loops, rows), CountOf(loops, columns)},
                     Gathered(args, args.input(1), right, 2)}};
  const Loops outputs = {{loops.dims.begin(), loops.dims.begin() + loops.outputs}, {}, 0};
  StridedBox back = BoxOf(loops, RowMajorStrides(outputs.dims), {&roles.batch, &roles.m, &roles.n});
  std::swap(back.from_strides, back.to_strides);
  void* y = args.output(0).data;
  const bool direct = back.from_strides == back.to_strides;
  if (!direct) y = args.scratch->Get(static_cast<size_t>(batch * m * n) * sizeof(float), 3);
  product.outputs = {{DataType::kFloat, {batch, m, n}, y}};
  product.scratch = args.scratch;
  PF_RETURN_IF_ERROR(LinearProduct(product, {.trans_b = transposed}));
  if (!direct) CopyBox(back, sizeof(float), y, args.output(0).data);
  return absl::OkStatus();
}

absl::Status RunEinsumProduct(KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const Loops loops, LoopsOf(args));
  const auto roles = ProductLoopsOf(loops);
  constexpr int64_t kMinMatrix = 16;  // products of vectors gain nothing
  const bool suits = roles && CountOf(loops, roles->m) * CountOf(loops, roles->n) >= kMinMatrix;
  return suits ? RunProduct(args, loops, *roles) : RunEinsum(args);
}

}  // namespace

OpDef EinsumDef() {
  return OpDef("", "Einsum", 12)
      .Doc(
          "The sum of products of elements over the labels that the output does not have; a label "
          "names an axis, \"...\" those that broadcast.")
      .Input("Inputs", "T", "as the equation says", PortKind::kVariadic)
      .Output("Output", "T", "as the equation says")
      .RequiredAttr("equation", "terms with a letter for each axis: \"bij,bjk->bik\"")
      .Types("T", TypesOf(Numbers()))
      .InferShapes(InferEinsum)
      .AddKernel({.name = "reference", .run = RunEinsum})
      .AddKernel({.name = "linear",
                  .dtypes = {DataType::kFloat},
                  .priority = 10,
                  .run = RunEinsumProduct});
}

}  // namespace pagefuse::onnx_ops
