// The one declaration of an op: schema, shape inference, decomposition, checks, kernels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ir/graph.h"
#include "pagefuse/ir/shape.h"
#include "pagefuse/ops/kernel.h"
#include "pagefuse/ops/shape_context.h"

namespace pagefuse {

// How a port may be used.
enum class PortKind {
  kRequired,
  kOptional,
  kVariadic,  // the last port: one or more
};

// What a port carries, for the matcher: values that a decomposition computes from metadata alone
// (slots, lengths, masks, tables) may have readers outside a match; values computed from data may
// not.
enum class PortRole { kData, kMetadata };

struct Port {
  std::string name;
  std::string type;   // a type variable ("T") or a type name ("int64")
  std::string shape;  // for the reader: "[T, Hk, D]"
  PortKind kind = PortKind::kRequired;
  PortRole role = PortRole::kData;
};

struct AttributeDef {
  using Default = std::variant<std::monostate, int64_t, float, std::string, std::vector<int64_t>,
                               std::vector<float>>;
  std::string name;
  Default default_value;  // monostate: required, or no default (see doc)
  bool required = false;
  std::string doc;
  bool is_reach = false;  // a distance with no largest number, see ReachAttr
  bool is_flag = false;   // 0 or 1, see FlagAttr
};

// One spelling of an op in standard ops, for one choice of attributes and optional ports.
struct DecompositionVariant {
  std::string name;  // "fp8_per_tensor", "window"
  // ONNX text of a function whose inputs and outputs are the op's ports in order (omitted ones left
  // out of the list, matched by name). `@attribute` refers to an attribute of the op: a matcher
  // binds it to the constant it meets.
  std::string text;
  // Attributes with a fixed value in this variant, besides the ones that are bound.
  std::vector<std::pair<std::string, Attribute>> attributes;
};

// A reach beyond what any tensor holds is cut, so that sums of it and of positions fit in int64.
inline int64_t WithinReach(int64_t distance) { return std::min(distance, kMaxElements); }

class OpDef {
 public:
  using InferFn = std::function<absl::Status(ShapeContext&)>;
  using ValidateFn = std::function<absl::Status(const KernelArgs&)>;
  // The variant that computes `node` exactly (attributes and present ports decide); types may be
  // read from its values.
  using DecomposeFn = std::function<absl::StatusOr<DecompositionVariant>(const Node& node)>;

  // `since`: first opset version of the domain that has this meaning.
  OpDef(std::string_view domain, std::string_view name, int since);

  OpDef& Doc(std::string_view text);
  OpDef& Input(std::string_view name, std::string_view type, std::string_view shape = "",
               PortKind kind = PortKind::kRequired, PortRole role = PortRole::kData);
  OpDef& Output(std::string_view name, std::string_view type, std::string_view shape = "",
                PortKind kind = PortKind::kRequired);
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
  OpDef& Types(std::string_view variable, std::vector<DataType> types);
  OpDef& InferShapes(InferFn infer);
  // Checks of input values that shapes do not tell (slot range, block ids); runs before any kernel
  // of the op.
  OpDef& Validate(ValidateFn validate);
  OpDef& Decomposition(std::string_view text);  // one spelling for all attributes
  OpDef& Decomposition(DecomposeFn decompose);
  // Spellings that fusion rules look for; one per structure (mode, window, cap), filled from
  // Decomposition where it is one text.
  OpDef& Variants(std::function<std::vector<DecompositionVariant>()> variants);
  OpDef& AddKernel(Kernel kernel);
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
  const std::vector<std::pair<std::string, std::vector<DataType>>>& types() const { return types_; }
  const std::vector<Kernel>& kernels() const { return kernels_; }
  const std::vector<std::pair<int, int>>& views() const { return views_; }
  const std::vector<std::pair<int, int>>& in_place() const { return in_place_; }
  const std::vector<std::pair<int, int>>& aliases() const { return aliases_; }
  bool has_decomposition() const { return decompose_ != nullptr; }
  bool checks_values() const { return validate_ != nullptr; }
  bool is_elementwise() const { return is_elementwise_; }
  absl::StatusOr<DecompositionVariant> Decompose(const Node& node) const;
  std::vector<DecompositionVariant> variants() const;

  // Schema checks: port counts, required attributes, attribute kinds, types against the variables;
  // then the op's own inference.
  absl::Status Infer(ShapeContext& context) const;
  absl::Status CheckValues(const KernelArgs& args) const;

 private:
  std::string domain_, name_, doc_;
  int since_;
  std::vector<Port> inputs_, outputs_;
  std::vector<AttributeDef> attributes_;
  std::vector<std::pair<std::string, std::vector<DataType>>> types_;
  InferFn infer_;
  ValidateFn validate_;
  DecomposeFn decompose_;
  std::function<std::vector<DecompositionVariant>()> variants_;
  std::vector<Kernel> kernels_;
  bool is_elementwise_ = false;
  std::vector<std::pair<int, int>> views_, in_place_, aliases_;
};

}  // namespace pagefuse
