// SPDX-License-Identifier: Apache-2.0
// The one declaration of an op: schema, shapes, decomposition, checks, kernels.
//
// An op declares its ports in two tables (port.h). What a table says is checked at every node, in
// passes with symbolic dims and before a kernel runs with numbers; the shapes of outputs, the
// messages and docs/ops.md come from it too.
//
//   constexpr Ports kIn({
//       {"query", "T", "[T, Hq, D], Hq % Hk = 0"},
//       {"key_cache", "T", "[NB, BS, Hk, D]"},
//       PortSpec("query_start_loc", "int32", "[B + 1]").Metadata(),
//       PortSpec("k_scale", "float", "[] or [1]").RequiredIf("format = fp8"),
//   });
//   constexpr Ports kOut({{"output", "T", "[T, Hq, D]"}});
//
// Shapes. A dim is a size: a number, a name, or an expression of both with + - * / % ^ and
// parentheses; / leaves no rest. A name is
//
//   - an integer attribute of the op, and stands for its value;
//   - a size that OpDef::Let defines;
//   - else a dim: the first input that tells it decides, and all others must agree. `T'` is one
//     name. An expression with one name that is not known yet tells it: with 2 * W, 6 means W = 3.
//
// "..." is any number of dims, the same on every port ("...'" is another such list). What a node
// does not tell agrees with everything, and becomes a fresh dim in an output.
//
//   "[] or [1]", "[], [1] or [Hk]"             one of these
//   "[E, N, K] if transB, else [E, K, N]"      the first whose condition holds
//   "[NB, S], S >= block_size * 584"           and what holds besides: <=, >=, =
//   "as cos"                                   the shape of another input
//   "[P, R]: R/2 cosines, then R/2 sines"      after the colon: for the reader
//
// Conditions. "transB": an attribute that is not 0; "format = fp8": one with that value;
// "positions": a port that is given; "not positions": its opposite.
//
// Types. A type name, a variable of OpDef::Types (one type at a node), or an attribute that names
// the type; or several of them with conditions: "uint8 if format = fp8, else bfloat16".
//
// What this language does not say is said in code: a size by a function (Let), all else by
// InferShapes, which may ask for the sizes by name (ShapeContext::size).
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/ir/tensor/shape.h"
#include "pagefuse/ops/schema/attribute_def.h"
#include "pagefuse/ops/schema/body_op.h"
#include "pagefuse/ops/schema/kernel.h"
#include "pagefuse/ops/schema/port.h"
#include "pagefuse/ops/schema/shape_context.h"

namespace pagefuse {

struct Signature;

// One of an op's function texts. With several, each is for nodes without some optional inputs.
struct DecompositionForm {
  std::string name;  // "without bias"
  std::string text;
};

// A size that an op gives a name: an expression, or a function where the language does not say it.
struct SizeDef {
  using ComputeFn = std::function<absl::StatusOr<Dim>(const ShapeContext&)>;
  std::string name;
  std::string text;  // the expression; with a function: what it is, for the reader
  ComputeFn compute = {};
};

// A reach beyond what any tensor holds is cut, so that sums of it and of positions fit in int64.
inline int64_t WithinReach(int64_t distance) { return std::min(distance, kMaxElements); }

class OpDef {
 public:
  using InferFn = std::function<absl::Status(ShapeContext&)>;
  using ValidateFn = std::function<absl::Status(const KernelArgs&)>;
  // What computes `node` exactly, as ONNX text of a function whose inputs and outputs are the op's
  // ports in order (omitted ones left out of the list, matched by name). `@attribute` refers to an
  // attribute of the op. Attributes and present ports decide; types may be read from the node's
  // values.
  using DecomposeFn = std::function<absl::StatusOr<std::string>(const Node& node)>;

  // `since`: first opset version of the domain that has this meaning.
  OpDef(std::string_view domain, std::string_view name, int since);
  // Copied and destroyed in one place rather than in every source that declares an op.
  OpDef(const OpDef&);
  OpDef(OpDef&&) noexcept;
  OpDef& operator=(const OpDef&);
  OpDef& operator=(OpDef&&) noexcept;
  ~OpDef();

  OpDef& Doc(std::string_view text);
  template <size_t N>
  OpDef& Inputs(const Ports<N>& ports) {
    for (const PortSpec& spec : ports.specs) AddPort(spec, inputs_);
    return *this;
  }
  template <size_t N>
  OpDef& Outputs(const Ports<N>& ports) {
    for (const PortSpec& spec : ports.specs) AddPort(spec, outputs_);
    return *this;
  }
  // A name for a size, see above.
  OpDef& Let(std::string_view name, std::string_view expression);
  OpDef& Let(std::string_view name, std::string_view doc, SizeDef::ComputeFn compute);
  // A port whose shape is not declared but checked by InferShapes; `shape` is for the reader.
  OpDef& Input(std::string_view name, std::string_view type, std::string_view shape = "",
               PortKind kind = PortKind::kRequired, PortRole role = PortRole::kData);
  OpDef& Output(std::string_view name, std::string_view type, std::string_view shape = "",
                PortKind kind = PortKind::kRequired);
  // A port that is made at run time.
  OpDef& Input(Port port);
  OpDef& Output(Port port);
  OpDef& Attr(std::string_view name, AttributeDef::Default default_value,
              std::string_view doc = "");
  OpDef& RequiredAttr(std::string_view name, std::string_view doc = "");
  // Yes or no: 0 or 1. Runtimes read other numbers as either (`== 1` here, `!= 0` there), so they
  // are refused. Flags that all of them read as "not 0" (transA of Gemm) are an Attr.
  OpDef& FlagAttr(std::string_view name, int64_t default_value, std::string_view doc = "");
  // How far something reaches, such as a window: the largest int64 says "to the end". Who reads it
  // cuts it with WithinReach; other integers of ops that are not ONNX's own are refused from
  // kMaxElements on.
  OpDef& ReachAttr(std::string_view name, int64_t default_value, std::string_view doc);
  // What the attribute declared last may be: an int from `least` (to `most`), one of a few.
  OpDef& AtLeast(int64_t least);
  OpDef& Within(int64_t least, int64_t most);
  OpDef& OneOf(std::initializer_list<std::string_view> names);
  OpDef& OneOf(std::initializer_list<int64_t> numbers);
  OpDef& Types(std::string_view variable, std::vector<DataType> types);
  // What declared shapes and types do not say. Runs after these are checked and the outputs have
  // their declared shapes, and may set others.
  OpDef& InferShapes(InferFn infer);
  // Checks of input values that shapes do not tell (slot range, block ids); runs before any kernel
  // of the op.
  OpDef& Validate(ValidateFn validate);
  OpDef& Decomposition(std::string_view text);  // one text for all nodes
  OpDef& Decomposition(DecomposeFn decompose);
  // The texts that a function chooses among, larger ones first: rules may look for them, as they may
  // for a Decomposition that is one text.
  OpDef& Forms(std::vector<DecompositionForm> forms);
  OpDef& AddKernel(Kernel kernel);
  // For ops whose attributes are graphs.
  OpDef& Bodies(BodyOp bodies);
  // Element i of the one output depends on the inputs' elements i after numpy's broadcast, and on
  // nothing else; values of floats need no Validate. Every kernel does without `prepare` and
  // `scratch`, sees nothing in the number of dims, and may write over an input of the output's type
  // and shape. Chains of such ops run tile by tile (pagefuse.Elementwise).
  OpDef& Elementwise();
  OpDef& View(int output, int input);  // the output is the input's bytes under another shape
  OpDef& InPlace(int output,
                 int input);  // the output may use the input's memory if that has no other reader
  OpDef& Alias(int output, int input);  // the output is the input's memory, updated (KV caches)

  const std::string& domain() const { return domain_; }
  const std::string& name() const { return name_; }
  int since() const { return since_; }
  const std::string& doc() const { return doc_; }
  const std::vector<Port>& inputs() const { return inputs_; }
  const std::vector<Port>& outputs() const { return outputs_; }
  const std::vector<AttributeDef>& attributes() const { return attributes_; }
  const std::vector<SizeDef>& lets() const { return lets_; }
  const std::vector<std::pair<std::string, std::vector<DataType>>>& types() const { return types_; }
  const std::vector<Kernel>& kernels() const { return kernels_; }
  const std::vector<std::pair<int, int>>& views() const { return views_; }
  const std::vector<std::pair<int, int>>& in_place() const { return in_place_; }
  const std::vector<std::pair<int, int>>& aliases() const { return aliases_; }
  bool has_decomposition() const { return decompose_ != nullptr; }
  // Null for ops without graphs.
  const BodyOp* bodies() const { return bodies_.get(); }
  bool checks_values() const { return validate_ != nullptr; }
  bool is_elementwise() const { return is_elementwise_; }
  absl::StatusOr<std::string> Decompose(const Node& node) const;
  const std::vector<DecompositionForm>& forms() const { return forms_; }

  // Parses the declared ports; a registry does it once for its op. InvalidArgument naming the port.
  absl::Status Compile();

  // Schema checks: port counts, attributes, types, declared shapes; then the op's own inference.
  absl::Status Infer(ShapeContext& context) const;
  absl::Status CheckValues(const KernelArgs& args) const;

 private:
  static void AddPort(const PortSpec& spec, std::vector<Port>& ports);
  absl::Status InferWith(const Signature& signature, ShapeContext& context) const;
  absl::Status InferShapesWith(const Signature& signature, ShapeContext& context) const;

  std::string domain_, name_, doc_;
  int since_;
  std::vector<Port> inputs_, outputs_;
  std::vector<AttributeDef> attributes_;
  std::vector<SizeDef> lets_;
  std::shared_ptr<const Signature> signature_;
  std::vector<std::pair<std::string, std::vector<DataType>>> types_;
  InferFn infer_;
  ValidateFn validate_;
  DecomposeFn decompose_;
  std::vector<DecompositionForm> forms_;
  std::vector<Kernel> kernels_;
  std::shared_ptr<const BodyOp> bodies_;
  bool is_elementwise_ = false;
  std::vector<std::pair<int, int>> views_, in_place_, aliases_;
};

}  // namespace pagefuse
