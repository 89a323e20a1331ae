// SPDX-License-Identifier: Apache-2.0
// Shapes and types of outputs that the host may know when it loads a graph.
#include <optional>
#include <string>
#include <vector>

#include "plugin/ort/one_node.h"
#include "plugin/ort/op_row.h"
#include "plugin/ort/ort_status.h"

namespace pagefuse::ort {
namespace {

constexpr int64_t kUnknownDim = -1;

// A node as the host describes it to functions for shapes.
class DescribedNode {
 public:
  DescribedNode(Api* api, ShapeInferContext* context, const OpDef& op)
      : api_(api), context_(context), op_(op) {}

  absl::Status Read() {
    size_t count = 0;
    PF_RETURN_IF_ERROR(
        FromOrtStatus(api_, kShapeInferContextGetInputCount(api_, context_, &count)));
    count = std::min(count, op_.inputs().size());
    for (size_t i = 0; i < count; ++i) PF_RETURN_IF_ERROR(ReadInput(i));
    for (const AttributeDef& def : op_.attributes()) ReadAttribute(def);
    return absl::OkStatus();
  }

  // The host does not tell which outputs the node has, and release 1.24 ends the program where one
  // is named that it has not: those that it must have.
  absl::Status Infer(OneNode& node) {
    for (const Port& port : op_.outputs()) {
      const bool is_given = port.kind != PortKind::kOptional;
      // Any type: inference tells which.
      spec_.outputs.push_back(
          {port.name, is_given ? DataType::kFloat : DataType::kUndefined, {}, {}});
    }
    return node.Build(op_, spec_, shapes_);
  }

  absl::Status SetOutput(int index, const pagefuse::Value& value) const {
    if (!value.shape()) return absl::OkStatus();
    TensorTypeAndShapeInfo* info = nullptr;
    PF_RETURN_IF_ERROR(FromOrtStatus(api_, kCreateTensorTypeAndShapeInfo(api_, &info)));
    const absl::Status status = FillAndSet(index, value, info);
    kReleaseTensorTypeAndShapeInfo(api_, info);
    return status;
  }

 private:
  absl::Status ReadInput(size_t index) {
    NodeSpec::Port& port = spec_.inputs.emplace_back();
    std::optional<Shape>& shape = shapes_.emplace_back();
    port.name = op_.inputs()[index].name;
    TensorTypeAndShapeInfo* info = nullptr;  // the host's
    Status* status = kShapeInferContextGetInputTypeShape(api_, context_, index, &info);
    if (status != nullptr) kReleaseStatus(api_, status);
    if (status != nullptr || info == nullptr) return absl::OkStatus();
    ElementType type = 0;
    size_t rank = 0;
    PF_RETURN_IF_ERROR(FromOrtStatus(api_, kGetTensorElementType(api_, info, &type)));
    PF_RETURN_IF_ERROR(FromOrtStatus(api_, kGetDimensionsCount(api_, info, &rank)));
    std::vector<int64_t> dims(rank);
    std::vector<const char*> symbols(rank, "");
    PF_RETURN_IF_ERROR(FromOrtStatus(api_, kGetDimensions(api_, info, dims.data(), rank)));
    PF_RETURN_IF_ERROR(
        FromOrtStatus(api_, kGetSymbolicDimensions(api_, info, symbols.data(), rank)));
    port.dtype = DataTypeFromCode(type).value_or(DataType::kUndefined);
    if (rank == 0) return absl::OkStatus();  // a number, or nothing is known
    shape.emplace();
    for (size_t i = 0; i < rank; ++i) {
      shape->dims().push_back(dims[i] >= 0 ? Dim(dims[i]) : Dim::Parse(symbols[i]));
    }
    return absl::OkStatus();
  }

  void ReadAttribute(const AttributeDef& def) {
    const OpAttr* attribute = nullptr;
    Status* status = kShapeInferContextGetAttribute(api_, context_, def.name.c_str(), &attribute);
    if (status != nullptr) kReleaseStatus(api_, status);
    if (status != nullptr || attribute == nullptr) return;
    int64_t integer = 0;
    float number = 0;
    if (ReadBytes(attribute, OpAttrType::kInt, &integer, sizeof(integer))) {
      spec_.attributes.emplace_back(def.name, Attribute{.value = integer});
    } else if (ReadBytes(attribute, OpAttrType::kFloat, &number, sizeof(number))) {
      spec_.attributes.emplace_back(def.name, Attribute{.value = number});
    } else {
      ReadList(def.name, attribute);
    }
  }

  void ReadList(const std::string& name, const OpAttr* attribute) {
    size_t size = 0;
    const auto ask = [&](OpAttrType type) {
      size = 0;
      Status* status = kReadOpAttr(api_, attribute, type, nullptr, 0, &size);
      if (status != nullptr) kReleaseStatus(api_, status);
      return size > 0;
    };
    if (ask(OpAttrType::kString)) {
      std::string text(size, '\0');
      if (!ReadBytes(attribute, OpAttrType::kString, text.data(), size)) return;
      text.resize(text.find('\0') == std::string::npos ? size : text.find('\0'));
      spec_.attributes.emplace_back(name, Attribute{.value = text});
    } else if (ask(OpAttrType::kInts)) {
      std::vector<int64_t> list(size / sizeof(int64_t));
      if (!ReadBytes(attribute, OpAttrType::kInts, list.data(), size)) return;
      spec_.attributes.emplace_back(name, Attribute{.value = list});
    } else if (ask(OpAttrType::kFloats)) {
      std::vector<float> list(size / sizeof(float));
      if (!ReadBytes(attribute, OpAttrType::kFloats, list.data(), size)) return;
      spec_.attributes.emplace_back(name, Attribute{.value = list});
    }
  }

  bool ReadBytes(const OpAttr* attribute, OpAttrType type, void* data, size_t size) const {
    size_t read = 0;
    Status* status = kReadOpAttr(api_, attribute, type, data, size, &read);
    if (status == nullptr) return true;
    kReleaseStatus(api_, status);
    return false;
  }

  // Files have bytes where an op gives float8, unless that is a cache of float8.
  DataType TypeInFile(int output, DataType type) const {
    if (!IsFloat8(type)) return type;
    for (const auto& [out, in] : op_.aliases()) {
      const bool is_given = in < static_cast<int>(spec_.inputs.size());
      if (out == output && is_given && spec_.inputs[in].dtype == type) return type;
    }
    return DataType::kUint8;
  }

  absl::Status FillAndSet(int index, const pagefuse::Value& value,
                          TensorTypeAndShapeInfo* info) const {
    std::vector<int64_t> dims;
    std::vector<std::string> symbols;
    for (const Dim& dim : value.shape()->dims()) {
      dims.push_back(dim.constant().value_or(kUnknownDim));
      symbols.push_back(dim.known() && !dim.is_constant() ? dim.ToString() : "");
      if (symbols.back().rfind(ShapeContext::kFreshPrefix, 0) == 0) symbols.back().clear();
    }
    std::vector<const char*> names;
    for (const std::string& symbol : symbols) names.push_back(symbol.c_str());
    const auto type = static_cast<ElementType>(TypeInFile(index, value.dtype()));
    PF_RETURN_IF_ERROR(FromOrtStatus(api_, kSetTensorElementType(api_, info, type)));
    PF_RETURN_IF_ERROR(FromOrtStatus(api_, kSetDimensions(api_, info, dims.data(), dims.size())));
    PF_RETURN_IF_ERROR(
        FromOrtStatus(api_, kSetSymbolicDimensions(api_, info, names.data(), names.size())));
    return FromOrtStatus(api_, kShapeInferContextSetOutputTypeShape(api_, context_, index, info));
  }

  Api* api_;
  ShapeInferContext* context_;
  const OpDef& op_;
  NodeSpec spec_;
  std::vector<std::optional<Shape>> shapes_;
};

absl::Status InferShapes(const OpRow& row, ShapeInferContext* context) {
  DescribedNode described(row.api, context, row.op);
  PF_RETURN_IF_ERROR(described.Read());
  OneNode described_node;
  PF_RETURN_IF_ERROR(described.Infer(described_node));
  const Node& node = described_node.node();
  for (int i = 0; i < node.num_outputs(); ++i) {
    if (node.output(i) == nullptr) continue;
    PF_RETURN_IF_ERROR(described.SetOutput(i, *node.output(i)));
  }
  return absl::OkStatus();
}

}  // namespace

Status* InferRowShapes(const CustomOp* self, ShapeInferContext* context) {
  // What is not known when a graph is loaded is known when it runs, and what is wrong is said then.
  (void)Caught([&] { return InferShapes(*static_cast<const OpRow*>(self), context); });
  return nullptr;
}

}  // namespace pagefuse::ort
