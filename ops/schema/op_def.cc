// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/schema/op_def.h"

#include <optional>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/schema/moved_attributes.h"
#include "pagefuse/ops/schema/port_checks.h"
#include "pagefuse/ops/schema/shape_matcher.h"
#include "pagefuse/ops/schema/signature.h"
#include "pagefuse/ops/schema/type_bindings.h"

namespace pagefuse {

OpDef::OpDef(const OpDef&) = default;
OpDef::OpDef(OpDef&&) noexcept = default;
OpDef& OpDef::operator=(const OpDef&) = default;
OpDef& OpDef::operator=(OpDef&&) noexcept = default;
OpDef::~OpDef() = default;

OpDef::OpDef(std::string_view domain, std::string_view name, int since)
    : domain_(domain == "ai.onnx" ? "" : domain), name_(name), since_(since) {}

OpDef& OpDef::Doc(std::string_view text) {
  doc_ = text;
  return *this;
}

void OpDef::AddPort(const PortSpec& spec, std::vector<Port>& ports) {
  ports.push_back({.name = std::string(spec.name),
                   .type = std::string(spec.type),
                   .shape = std::string(spec.shape),
                   .kind = spec.kind,
                   .role = spec.role,
                   .in_blocks = spec.in_blocks,
                   .required_if = std::string(spec.required_if),
                   .only_if = std::string(spec.only_if),
                   .is_checked = true});
}

OpDef& OpDef::Let(std::string_view name, std::string_view expression) {
  lets_.push_back({std::string(name), std::string(expression)});
  return *this;
}

OpDef& OpDef::Let(std::string_view name, std::string_view doc, SizeDef::ComputeFn compute) {
  lets_.push_back({std::string(name), std::string(doc), std::move(compute)});
  return *this;
}

OpDef& OpDef::Input(std::string_view name, std::string_view type, std::string_view shape,
                    PortKind kind, PortRole role) {
  inputs_.push_back({.name = std::string(name),
                     .type = std::string(type),
                     .shape = std::string(shape),
                     .kind = kind,
                     .role = role});
  return *this;
}

OpDef& OpDef::Output(std::string_view name, std::string_view type, std::string_view shape,
                     PortKind kind) {
  outputs_.push_back({.name = std::string(name),
                      .type = std::string(type),
                      .shape = std::string(shape),
                      .kind = kind});
  return *this;
}

OpDef& OpDef::Input(Port port) {
  inputs_.push_back(std::move(port));
  return *this;
}

OpDef& OpDef::Output(Port port) {
  outputs_.push_back(std::move(port));
  return *this;
}

OpDef& OpDef::Attr(std::string_view name, AttributeDef::Default default_value,
                   std::string_view doc) {
  attributes_.push_back({.name = std::string(name),
                         .default_value = std::move(default_value),
                         .doc = std::string(doc)});
  return *this;
}

OpDef& OpDef::RequiredAttr(std::string_view name, std::string_view doc) {
  attributes_.push_back(
      {.name = std::string(name), .default_value = {}, .required = true, .doc = std::string(doc)});
  return *this;
}

OpDef& OpDef::FlagAttr(std::string_view name, int64_t default_value, std::string_view doc) {
  return Attr(name, default_value, doc).Within(0, 1);
}

OpDef& OpDef::ReachAttr(std::string_view name, int64_t default_value, std::string_view doc) {
  Attr(name, default_value, doc);
  attributes_.back().is_reach = true;
  return *this;
}

OpDef& OpDef::AtLeast(int64_t least) {
  attributes_.back().least = least;
  return *this;
}

OpDef& OpDef::Within(int64_t least, int64_t most) {
  attributes_.back().least = least;
  attributes_.back().most = most;
  return *this;
}

OpDef& OpDef::OneOf(std::initializer_list<std::string_view> names) {
  attributes_.back().names.assign(names.begin(), names.end());
  return *this;
}

OpDef& OpDef::OneOf(std::initializer_list<int64_t> numbers) {
  attributes_.back().numbers = numbers;
  return *this;
}

OpDef& OpDef::Types(std::string_view variable, std::vector<DataType> types) {
  types_.emplace_back(std::string(variable), std::move(types));
  return *this;
}

OpDef& OpDef::InferShapes(InferFn infer) {
  infer_ = std::move(infer);
  return *this;
}

OpDef& OpDef::Validate(ValidateFn validate) {
  validate_ = std::move(validate);
  return *this;
}

OpDef& OpDef::Decomposition(std::string_view text) {
  forms_ = {{.name = "", .text = std::string(text)}};
  decompose_ = [text = std::string(text)](const Node&) { return text; };
  return *this;
}

OpDef& OpDef::Decomposition(DecomposeFn decompose) {
  decompose_ = std::move(decompose);
  return *this;
}

OpDef& OpDef::Forms(std::vector<DecompositionForm> forms) {
  forms_ = std::move(forms);
  return *this;
}

OpDef& OpDef::Bodies(BodyOp bodies) {
  bodies_ = std::make_shared<const BodyOp>(std::move(bodies));
  return *this;
}

OpDef& OpDef::AddKernel(Kernel kernel) {
  kernels_.push_back(std::move(kernel));
  return *this;
}

OpDef& OpDef::Elementwise() {
  is_elementwise_ = true;
  return *this;
}

OpDef& OpDef::View(int output, int input) {
  views_.emplace_back(output, input);
  return *this;
}

OpDef& OpDef::InPlace(int output, int input) {
  in_place_.emplace_back(output, input);
  return *this;
}

OpDef& OpDef::Alias(int output, int input) {
  aliases_.emplace_back(output, input);
  return *this;
}

absl::StatusOr<std::string> OpDef::Decompose(const Node& node) const {
  if (!decompose_) {
    return absl::UnimplementedError(StrCat(node.Description(), ": op has no decomposition"));
  }
  return decompose_(node);
}

absl::Status OpDef::Compile() {
  PF_ASSIGN_OR_RETURN(signature_, Signature::Make(*this));
  return absl::OkStatus();
}

absl::Status OpDef::Infer(ShapeContext& c) const {
  if (signature_ != nullptr) return InferWith(*signature_, c);
  PF_ASSIGN_OR_RETURN(const auto signature, Signature::Make(*this));
  return InferWith(*signature, c);
}

absl::Status OpDef::InferShapesWith(const Signature& signature, ShapeContext& c) const {
  DeclaredSizes sizes(signature);
  c.sizes_ = &sizes;
  absl::Status status;
  if (signature.is_declared) status = ShapeMatcher(*this, signature, c, sizes).Run();
  if (status.ok() && infer_) status = infer_(c);
  c.sizes_ = nullptr;
  return status;
}

absl::Status OpDef::InferWith(const Signature& signature, ShapeContext& c) const {
  c.op_ = this;
  PF_RETURN_IF_ERROR(CheckPorts(c.node(), *this));
  PF_RETURN_IF_ERROR(CheckAttributes(c, attributes_));
  PF_RETURN_IF_ERROR(CheckMovedAttributes(c));
  TypeBindings types(*this, signature);
  PF_RETURN_IF_ERROR(types.BindInputs(c));
  PF_RETURN_IF_ERROR(InferShapesWith(signature, c));
  for (int i = 0; i < c.num_outputs(); ++i) {
    const std::optional<Shape>& shape = c.outputs_[i].shape;
    if (!c.has_output(i) || !shape || WithinMaxElements(*shape)) continue;
    return c.OutputError(
        i, StrCat("expected dims of a tensor that fits in memory, got ", shape->ToString()));
  }
  return types.CheckOutputs(c);
}

absl::Status OpDef::CheckValues(const KernelArgs& args) const {
  return validate_ ? validate_(args) : absl::OkStatus();
}

}  // namespace pagefuse
