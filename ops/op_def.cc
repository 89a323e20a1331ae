#include "pagefuse/ops/op_def.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "pagefuse/ir/status_macros.h"
#include "pagefuse/ops/verify_ports.h"

namespace pagefuse {
namespace {

std::string TypeName(DataType type) { return std::string(DataTypeName(type)); }

// The name of the kind of attribute that a default stands for, empty if any kind may be.
const char* KindName(const AttributeDef::Default& value) {
  constexpr const char* kNames[] = {"", "an int", "a float", "a string", "ints", "floats"};
  return kNames[value.index()];
}

bool HasKindOf(const Attribute& attribute, const AttributeDef::Default& kind) {
  switch (kind.index()) {
    case 1:
      return std::holds_alternative<int64_t>(attribute.value);
    case 2:
      return std::holds_alternative<float>(attribute.value);
    case 3:
      return std::holds_alternative<std::string>(attribute.value);
    case 4:
      return std::holds_alternative<std::vector<int64_t>>(attribute.value);
    case 5:
      return std::holds_alternative<std::vector<float>>(attribute.value);
    default:
      return true;
  }
}

// Sums and products of a few sizes then fit in int64. ONNX's own ops are asked for "to the end" by
// the largest number.
absl::Status CheckSize(const ShapeContext& c, const AttributeDef& def, const Attribute& attribute) {
  const auto* value = std::get_if<int64_t>(&attribute.value);
  if (c.node().domain().empty() || value == nullptr) return absl::OkStatus();
  if (*value >= -kMaxElements && (*value <= kMaxElements || def.is_reach)) return absl::OkStatus();
  return c.AttributeError(
      def.name, absl::StrCat("expected ", -kMaxElements, " to ", kMaxElements, ", got ", *value));
}

absl::Status CheckFlag(const ShapeContext& c, const AttributeDef& def, const Attribute& attribute) {
  const auto* value = std::get_if<int64_t>(&attribute.value);
  if (!def.is_flag || value == nullptr || *value == 0 || *value == 1) return absl::OkStatus();
  return c.AttributeError(def.name, absl::StrCat("expected 0 or 1, got ", *value));
}

absl::Status CheckAttributes(const ShapeContext& c, const std::vector<AttributeDef>& defs) {
  for (const AttributeDef& def : defs) {
    const Attribute* attribute = c.node().attribute(def.name);
    if (attribute == nullptr) {
      if (def.required) return c.AttributeError(def.name, "is missing");
      continue;
    }
    if (!HasKindOf(*attribute, def.default_value)) {
      return c.AttributeError(def.name, absl::StrCat("expected ", KindName(def.default_value)));
    }
  }
  for (const auto& [name, attribute] : c.node().attributes()) {
    const auto def = std::find_if(defs.begin(), defs.end(),
                                  [&name = name](const AttributeDef& d) { return d.name == name; });
    // An attribute that is not understood may change what the node means, so it is not skipped.
    if (def == defs.end()) return c.AttributeError(name, "is not an attribute of this op");
    PF_RETURN_IF_ERROR(CheckSize(c, *def, attribute));
    PF_RETURN_IF_ERROR(CheckFlag(c, *def, attribute));
  }
  return absl::OkStatus();
}

std::string TypeNames(const std::vector<DataType>& types) {
  return absl::StrJoin(
      types, ", ", [](std::string* out, DataType type) { absl::StrAppend(out, TypeName(type)); });
}

// What the type variables of an op stand for at one node.
class TypeBindings {
 public:
  explicit TypeBindings(const OpDef& op) : op_(op) {}

  // Checks one input type, and binds the variable of its port.
  absl::Status Bind(const ShapeContext& c, int i, const Port& port) {
    const DataType type = c.input_type(i);
    if (type == DataType::kUndefined || port.type.empty()) return absl::OkStatus();
    const std::vector<DataType>* allowed = Allowed(port.type);
    if (allowed == nullptr) {
      if (DataTypeName(type) == port.type) return absl::OkStatus();
      return c.InputError(i, absl::StrCat("expected type ", port.type, ", got ", TypeName(type)));
    }
    if (std::find(allowed->begin(), allowed->end(), type) == allowed->end()) {
      return c.InputError(
          i, absl::StrCat("expected type ", TypeNames(*allowed), ", got ", TypeName(type)));
    }
    const auto [it, inserted] = bound_.emplace(port.type, type);
    if (inserted || it->second == type) return absl::OkStatus();
    return c.InputError(i, absl::StrCat("expected type ", TypeName(it->second),
                                        " as the inputs before, got ", TypeName(type)));
  }

  // The type of a port as far as the inputs decide it.
  DataType Find(const std::string& port_type) const {
    const auto it = bound_.find(port_type);
    if (it != bound_.end()) return it->second;
    const std::vector<DataType>* allowed = Allowed(port_type);
    if (allowed != nullptr) {
      return allowed->size() == 1 ? allowed->front() : DataType::kUndefined;
    }
    return DataTypeFromName(port_type).value_or(DataType::kUndefined);
  }

  bool IsAllowed(const std::string& port_type, DataType type) const {
    const std::vector<DataType>* allowed = Allowed(port_type);
    if (allowed == nullptr) return port_type.empty() || DataTypeName(type) == port_type;
    return std::find(allowed->begin(), allowed->end(), type) != allowed->end();
  }

 private:
  const std::vector<DataType>* Allowed(const std::string& variable) const {
    for (const auto& [name, types] : op_.types()) {
      if (name == variable) return &types;
    }
    return nullptr;
  }

  const OpDef& op_;
  std::map<std::string, DataType> bound_;
};

}  // namespace

OpDef::OpDef(std::string_view domain, std::string_view name, int since)
    : domain_(domain == "ai.onnx" ? "" : domain), name_(name), since_(since) {}

OpDef& OpDef::Doc(std::string_view text) {
  doc_ = text;
  return *this;
}

OpDef& OpDef::Input(std::string_view name, std::string_view type, std::string_view shape,
                    PortKind kind, PortRole role) {
  inputs_.push_back({std::string(name), std::string(type), std::string(shape), kind, role});
  return *this;
}

OpDef& OpDef::Output(std::string_view name, std::string_view type, std::string_view shape,
                     PortKind kind) {
  outputs_.push_back({std::string(name), std::string(type), std::string(shape), kind});
  return *this;
}

OpDef& OpDef::Attr(std::string_view name, AttributeDef::Default default_value,
                   std::string_view doc) {
  attributes_.push_back({std::string(name), std::move(default_value), false, std::string(doc)});
  return *this;
}

OpDef& OpDef::RequiredAttr(std::string_view name, std::string_view doc) {
  attributes_.push_back({std::string(name), std::monostate(), true, std::string(doc)});
  return *this;
}

OpDef& OpDef::FlagAttr(std::string_view name, int64_t default_value, std::string_view doc) {
  Attr(name, default_value, doc);
  attributes_.back().is_flag = true;
  return *this;
}

OpDef& OpDef::ReachAttr(std::string_view name, int64_t default_value, std::string_view doc) {
  Attr(name, default_value, doc);
  attributes_.back().is_reach = true;
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
  DecompositionVariant variant{"", std::string(text), {}};
  decompose_ = [variant](const Node&) { return variant; };
  if (!variants_) variants_ = [variant] { return std::vector<DecompositionVariant>{variant}; };
  return *this;
}

OpDef& OpDef::Decomposition(DecomposeFn decompose) {
  decompose_ = std::move(decompose);
  return *this;
}

OpDef& OpDef::Variants(std::function<std::vector<DecompositionVariant>()> variants) {
  variants_ = std::move(variants);
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

absl::StatusOr<DecompositionVariant> OpDef::Decompose(const Node& node) const {
  if (!decompose_) {
    return absl::UnimplementedError(absl::StrCat(node.Description(), ": op has no decomposition"));
  }
  return decompose_(node);
}

std::vector<DecompositionVariant> OpDef::variants() const {
  return variants_ ? variants_() : std::vector<DecompositionVariant>();
}

absl::Status OpDef::Infer(ShapeContext& c) const {
  c.op_ = this;
  PF_RETURN_IF_ERROR(CheckPorts(c.node(), *this));
  PF_RETURN_IF_ERROR(CheckAttributes(c, attributes_));
  TypeBindings types(*this);
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (c.has_input(i)) PF_RETURN_IF_ERROR(types.Bind(c, i, *FindPort(inputs_, i)));
  }
  if (infer_) PF_RETURN_IF_ERROR(infer_(c));
  for (int i = 0; i < c.num_outputs(); ++i) {
    if (!c.has_output(i)) continue;
    const Port& port = *FindPort(outputs_, i);
    const std::optional<Shape>& shape = c.outputs_[i].shape;
    if (shape && !WithinMaxElements(*shape)) {
      return c.Error(absl::StrCat("output ", i, " \"", port.name,
                                  "\": expected dims of a tensor that fits in memory, got ",
                                  shape->ToString()));
    }
    DataType& type = c.outputs_[i].dtype;
    if (type == DataType::kUndefined) type = types.Find(port.type);
    if (type == DataType::kUndefined || types.IsAllowed(port.type, type)) continue;
    return c.Error(absl::StrCat("output ", i, " \"", port.name, "\": type ", TypeName(type),
                                " is not a type of this op"));
  }
  return absl::OkStatus();
}

absl::Status OpDef::CheckValues(const KernelArgs& args) const {
  return validate_ ? validate_(args) : absl::OkStatus();
}

}  // namespace pagefuse
