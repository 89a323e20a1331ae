// SPDX-License-Identifier: Apache-2.0
// Names, numbers, types, tensors and attribute values as text.
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>

#include "absl/strings/escaping.h"
#include "absl/strings/str_join.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/type_proto.h"
#include "pagefuse/ir/tensor/absent_tensor.h"
#include "pagefuse/ir/text/text_attribute_types.h"
#include "pagefuse/ir/text/text_lexer.h"
#include "pagefuse/ir/text/text_parser.h"
#include "pagefuse/ir/text/text_printer.h"

namespace pagefuse {
namespace {

std::string PrintDim(const Dim& dim) {
  if (!dim.known()) return "?";
  if (dim.is_constant()) return StrCat(*dim.constant());
  const std::string text = dim.ToString();
  return IsIdentifier(text) ? text : PrintQuoted(text);
}

std::string PrintProtoDim(const onnx::TensorShapeProto::Dimension& dim) {
  if (dim.has_dim_value()) return StrCat(dim.dim_value());
  if (!dim.has_dim_param()) return "?";
  return IsIdentifier(dim.dim_param()) ? dim.dim_param() : PrintQuoted(dim.dim_param());
}

std::string ElementTypeName(int32_t code) {
  return std::string(DataTypeName(DataTypeFromCode(code).value_or(DataType::kUndefined)));
}

template <typename TensorType>
std::string PrintTensorProtoType(const TensorType& type) {
  const std::string name = ElementTypeName(type.elem_type());
  if (!type.has_shape()) return name + "[]";
  if (type.shape().dim_size() == 0) return name == "undefined" ? "" : name;
  std::vector<std::string> dims;
  for (const auto& dim : type.shape().dim()) dims.push_back(PrintProtoDim(dim));
  return StrCat(name, "[", absl::StrJoin(dims, ", "), "]");
}

// The type in words, right for all that the syntax has words for.
std::string PrintTypeInWords(const onnx::TypeProto& type) {
  if (type.has_tensor_type()) return PrintTensorProtoType(type.tensor_type());
  if (type.has_sequence_type()) {
    return StrCat("seq(", PrintTypeInWords(type.sequence_type().elem_type()), ")");
  }
  if (type.has_optional_type()) {
    return StrCat("optional(", PrintTypeInWords(type.optional_type().elem_type()), ")");
  }
  if (type.has_map_type()) {
    return StrCat("map(", ElementTypeName(type.map_type().key_type()), ", ",
                  PrintTypeInWords(type.map_type().value_type()), ")");
  }
  if (type.has_sparse_tensor_type()) {
    return StrCat("sparse_tensor(", PrintTensorProtoType(type.sparse_tensor_type()), ")");
  }
  if (!type.has_opaque_type()) return "";
  const auto& opaque = type.opaque_type();
  return StrCat("opaque(", opaque.has_domain() ? PrintQuoted(opaque.domain()) + ", " : "",
                opaque.has_name() ? PrintQuoted(opaque.name()) : "", ")");
}

template <typename Float>
std::string PrintFloating(Float value) {
  if (std::isnan(value)) {
    using Bits = std::conditional_t<sizeof(Float) == 4, uint32_t, uint64_t>;
    const Float plain = std::copysign(std::numeric_limits<Float>::quiet_NaN(), value);
    const Bits bits = std::bit_cast<Bits>(value);
    if (bits == std::bit_cast<Bits>(plain)) return std::signbit(value) ? "-nan" : "nan";
    return StrCat("nan(", bits, ")");
  }
  char buffer[64];
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), value);
  return std::string(buffer, result.ptr);
}

// The low `bits` of element `index`.
uint64_t ElementBits(const Tensor& tensor, int64_t index, int bits) {
  const auto* bytes = static_cast<const uint8_t*>(tensor.data());
  if (bits < 8) return (bytes[index * bits / 8] >> (index * bits % 8)) & ((1u << bits) - 1);
  uint64_t value = 0;
  for (int i = 0; i < bits / 8; ++i) value |= uint64_t{bytes[index * (bits / 8) + i]} << (8 * i);
  return value;
}

std::string PrintInteger(DataType type, uint64_t bits) {
  const int width = BitWidth(type);
  if (type == DataType::kBool) return bits != 0 ? "1" : "0";
  if (!IsInteger(type) || !IsSigned(type)) return StrCat(bits);
  const int unused = 64 - width;
  return StrCat(static_cast<int64_t>(bits << unused) >> unused);
}

std::string PrintElement(const Tensor& tensor, int64_t index) {
  switch (tensor.dtype()) {
    case DataType::kString:
      return PrintQuoted(tensor.strings()[index]);
    case DataType::kFloat:
      return PrintFloat(tensor.values<float>()[index], /*with_point=*/false);
    case DataType::kDouble:
      return PrintDouble(tensor.values<double>()[index]);
    case DataType::kComplex64: {
      const auto* parts = static_cast<const float*>(tensor.data()) + 2 * index;
      return StrCat(PrintFloating(parts[0]), ", ", PrintFloating(parts[1]));
    }
    case DataType::kComplex128: {
      const auto* parts = static_cast<const double*>(tensor.data()) + 2 * index;
      return StrCat(PrintFloating(parts[0]), ", ", PrintFloating(parts[1]));
    }
    default:
      return PrintInteger(tensor.dtype(), ElementBits(tensor, index, BitWidth(tensor.dtype())));
  }
}

}  // namespace

// --- names and numbers ---

std::string PrintQuoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

std::string PrintName(std::string_view name) {
  return IsPlainName(name) ? std::string(name) : PrintQuoted(name);
}

std::string PrintFloat(float value, bool with_point) {
  std::string text = PrintFloating(value);
  if (with_point && text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

std::string PrintDouble(double value) { return PrintFloating(value); }

// --- types ---

std::string PrintTensorType(DataType type, const std::vector<int64_t>& dims) {
  if (dims.empty()) return std::string(DataTypeName(type));
  return StrCat(DataTypeName(type), "[", absl::StrJoin(dims, ", "), "]");
}

std::string PrintType(const onnx::TypeProto& type) {
  const std::string text = PrintTypeInWords(type);
  const std::string bytes = type.SerializeAsString();
  const TextProtos& protos = OnnxTextProtos();
  const auto parsed = TextParser(text, &protos).ParseWholeType();
  // Denotations, unknown fields and nesting past the limit have no words.
  if (parsed.ok() && protos.TypeBytes(*parsed) == bytes) return text;
  return StrCat("proto(\"", absl::BytesToHexString(bytes), "\")");
}

std::string PrintValueType(const Value& value) {
  const bool dims_only = value.dtype() == DataType::kUndefined && value.shape().has_value();
  if (dims_only || !value.type_proto.empty() || !value.spelled_type.empty()) {
    onnx::TypeProto type;
    return ExportType(value, &type) ? PrintType(type) : "";
  }
  const std::string name(DataTypeName(value.dtype()));
  if (!value.shape()) return value.dtype() == DataType::kUndefined ? "" : name + "[]";
  if (value.shape()->empty()) return name;
  std::vector<std::string> dims;
  for (const Dim& dim : value.shape()->dims()) dims.push_back(PrintDim(dim));
  return StrCat(name, "[", absl::StrJoin(dims, ", "), "]");
}

// --- tensors ---

bool IsElided(const Tensor& tensor, int64_t max_elements) {
  return IsAbsent(tensor) || (max_elements >= 0 && tensor.size() > max_elements);
}

std::string PrintTensorData(const Tensor& tensor, int64_t max_elements) {
  if (IsElided(tensor, max_elements)) return "...";
  std::string text = "{";
  for (int64_t i = 0; i < tensor.size(); ++i) {
    StrAppend(&text, i == 0 ? "" : ", ", PrintElement(tensor, i));
  }
  return text + "}";
}

// --- attributes ---

std::string PrintOpaqueAttribute(std::string_view name, const OpaqueAttribute& attribute) {
  onnx::AttributeProto proto;
  std::string text;
  if (proto.ParseFromString(attribute.proto)) {
    if (proto.type() == onnx::AttributeProto::TYPE_PROTO) {
      text = StrCat(": type_proto = ", PrintType(proto.tp()));
    } else if (IsListType(proto.type())) {
      std::vector<std::string> types;
      for (const onnx::TypeProto& type : proto.type_protos()) types.push_back(PrintType(type));
      text = StrCat(": ", AttributeTypeName(proto.type()), " = [", absl::StrJoin(types, ", "), "]");
    }
  }
  if (!text.empty()) {
    const std::string line = StrCat("F <", PrintQuoted(name), text, "> () => () {}");
    const auto parsed = ParseFunction(line);
    const auto* read = parsed.ok() && parsed->defaults.size() == 1
                           ? std::get_if<OpaqueAttribute>(&parsed->defaults[0].second.value)
                           : nullptr;
    if (read != nullptr && *read == attribute) return text;
  }
  return StrCat(": proto = \"", absl::BytesToHexString(attribute.proto), "\"");
}

// The name that tensor `index` of the attribute has in its TensorProto.
static std::string TensorName(const Attribute& attribute, size_t index) {
  onnx::TensorProto proto;
  if (index >= attribute.tensor_fields.size()) return "";
  return proto.ParsePartialFromString(attribute.tensor_fields[index]) ? proto.name() : "";
}

// Writes ` = value`, with `: type` where the value alone would not tell.
void TextPrinter::AttributeValue(const Attribute& attribute) {
  auto list = [this](const auto& items, std::string_view type, const auto& print_item) {
    StrAppend(&text_, items.empty() ? StrCat(": ", type) : "", " = [");
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) text_ += ", ";
      print_item(items[i]);
    }
    text_ += "]";
  };
  auto print_float = [this](float value) { text_ += PrintFloat(value, /*with_point=*/true); };
  auto print_int = [this](int64_t value) { StrAppend(&text_, value); };
  auto print_string = [this](const std::string& value) { text_ += PrintQuoted(value); };
  auto print_graph = [this](const std::shared_ptr<Graph>& graph) { Subgraph(*graph); };
  size_t tensors = 0;
  auto print_tensor = [&](const Tensor& tensor) {
    const std::string name = TensorName(attribute, tensors++);
    StrAppend(&text_, PrintTensorType(tensor.dtype(), tensor.dims()), " ",
              name.empty() ? "" : PrintName(name) + " ", TensorData(tensor));
  };
  auto single = [this](const auto& value, const auto& print_item) {
    text_ += " = ";
    print_item(value);
  };

  const auto& value = attribute.value;
  if (const auto* number = std::get_if<float>(&value)) return single(*number, print_float);
  if (const auto* number = std::get_if<int64_t>(&value)) return single(*number, print_int);
  if (const auto* text = std::get_if<std::string>(&value)) return single(*text, print_string);
  if (const auto* tensor = std::get_if<Tensor>(&value)) return single(*tensor, print_tensor);
  if (const auto* graph = std::get_if<std::shared_ptr<Graph>>(&value))
    return single(*graph, print_graph);
  if (const auto* items = std::get_if<std::vector<float>>(&value))
    return list(*items, "floats", print_float);
  if (const auto* items = std::get_if<std::vector<int64_t>>(&value))
    return list(*items, "ints", print_int);
  if (const auto* items = std::get_if<std::vector<std::string>>(&value))
    return list(*items, "strings", print_string);
  if (const auto* items = std::get_if<std::vector<Tensor>>(&value))
    return list(*items, "tensors", print_tensor);
  if (const auto* items = std::get_if<Attribute::Graphs>(&value))
    return list(*items, "graphs", print_graph);
  const auto& reference = std::get<AttributeRef>(value);
  if (reference.onnx_type != 0) StrAppend(&text_, ": ", AttributeTypeName(reference.onnx_type));
  StrAppend(&text_, " = @", PrintName(reference.name));
}

}  // namespace pagefuse
