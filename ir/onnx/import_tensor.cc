// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ir/onnx/import_tensor.h"

#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ir/onnx/onnx_proto.h"

namespace pagefuse {
namespace {

// Smaller raw data is copied, so that it is aligned and no string is kept for it.
constexpr size_t kAdoptThreshold = 4096;

// The bytes of a string that protobuf allocated: adopted instead of copied.
class StringBuffer : public Buffer {
 public:
  explicit StringBuffer(std::unique_ptr<std::string> bytes)
      : Buffer(reinterpret_cast<std::byte*>(bytes->data()), bytes->size(), /*writable=*/true),
        bytes_(std::move(bytes)) {}

 private:
  std::unique_ptr<std::string> bytes_;
};

absl::Status WrongCount(std::string_view field, int64_t expected, int64_t got) {
  return absl::InvalidArgumentError(StrCat(field, ": expected ", expected, " elements, got ", got));
}

absl::StatusOr<Tensor> TakeRaw(onnx::TensorProto& proto, DataType type, std::vector<int64_t> dims) {
  if (type == DataType::kString) {
    return absl::InvalidArgumentError("raw_data: expected string_data for a string tensor");
  }
  PF_ASSIGN_OR_RETURN(const int64_t bytes, ByteSize(type, dims));
  if (static_cast<size_t>(bytes) != proto.raw_data().size()) {
    return absl::InvalidArgumentError(StrCat("raw_data: expected ", bytes, " bytes for ",
                                             DataTypeName(type), DimsToString(dims), ", got ",
                                             proto.raw_data().size()));
  }
  if (proto.raw_data().size() >= kAdoptThreshold) {
    std::unique_ptr<std::string> data(proto.release_raw_data());
    return Tensor::View(type, std::move(dims), std::make_shared<StringBuffer>(std::move(data)));
  }
  PF_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(type, std::move(dims)));
  if (bytes > 0) std::memcpy(tensor.mutable_data(), proto.raw_data().data(), bytes);
  return tensor;
}

// Typed fields whose entries are the elements, or `parts` entries an element.
template <typename T, typename Field>
absl::StatusOr<Tensor> CopyField(std::string_view name, const Field& field, DataType type,
                                 std::vector<int64_t> dims) {
  PF_ASSIGN_OR_RETURN(const int64_t bytes, ByteSize(type, dims));
  const int64_t expected = bytes / static_cast<int64_t>(sizeof(T));
  if (expected != field.size()) return WrongCount(name, expected, field.size());
  PF_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(type, std::move(dims)));
  T* out = static_cast<T*>(tensor.mutable_data());
  for (int i = 0; i < field.size(); ++i) {
    // uint32 elements are kept in uint64_data. An infinite float is an element like any other.
    if (std::is_integral_v<T> && field[i] > std::numeric_limits<T>::max()) {
      return absl::InvalidArgumentError(
          StrCat(name, ": element ", i, ": expected a ", DataTypeName(type), ", got ", field[i]));
    }
    out[i] = static_cast<T>(field[i]);
  }
  return tensor;
}

// Types of at most 16 bits are kept one an int32 entry; the 4-bit types two an entry, in its low
// byte.
absl::StatusOr<Tensor> CopyNarrow(const onnx::TensorProto& proto, DataType type,
                                  std::vector<int64_t> dims) {
  PF_ASSIGN_OR_RETURN(const int64_t bytes, ByteSize(type, dims));
  const int width = BitWidth(type) == 16 ? 2 : 1;
  const int64_t expected = bytes / width;
  if (expected != proto.int32_data_size()) {
    return WrongCount("int32_data", expected, proto.int32_data_size());
  }
  PF_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(type, std::move(dims)));
  auto* out = static_cast<uint8_t*>(tensor.mutable_data());
  // Bit patterns are written signed by some and unsigned by others.
  const int32_t low = width == 2 ? -(1 << 15) : -(1 << 7);
  const int32_t high = width == 2 ? (1 << 16) - 1 : (1 << 8) - 1;
  for (int64_t i = 0; i < expected; ++i) {
    const int32_t value = proto.int32_data(static_cast<int>(i));
    if (value < low || value > high) {
      return absl::InvalidArgumentError(
          StrCat("int32_data: element ", i, ": expected a ", DataTypeName(type), ", got ", value));
    }
    const auto bits = static_cast<uint16_t>(value);
    std::memcpy(out + i * width, &bits, width);  // little-endian: the low byte is first
  }
  return tensor;
}

absl::StatusOr<Tensor> CopyStrings(const onnx::TensorProto& proto, std::vector<int64_t> dims) {
  const std::optional<int64_t> count = ElementCount(dims);
  if (!count || *count != proto.string_data_size()) {
    return absl::InvalidArgumentError(StrCat("string_data: expected the strings of ",
                                             DimsToString(dims), ", got ",
                                             proto.string_data_size()));
  }
  return Tensor::Strings(std::move(dims), {proto.string_data().begin(), proto.string_data().end()});
}

absl::StatusOr<Tensor> TakeTyped(const onnx::TensorProto& proto, DataType type,
                                 std::vector<int64_t> dims) {
  switch (type) {
    case DataType::kFloat:
    case DataType::kComplex64:
      return CopyField<float>("float_data", proto.float_data(), type, std::move(dims));
    case DataType::kDouble:
    case DataType::kComplex128:
      return CopyField<double>("double_data", proto.double_data(), type, std::move(dims));
    case DataType::kInt64:
      return CopyField<int64_t>("int64_data", proto.int64_data(), type, std::move(dims));
    case DataType::kUint64:
      return CopyField<uint64_t>("uint64_data", proto.uint64_data(), type, std::move(dims));
    case DataType::kUint32:
      return CopyField<uint32_t>("uint64_data", proto.uint64_data(), type, std::move(dims));
    case DataType::kInt32:
      return CopyField<int32_t>("int32_data", proto.int32_data(), type, std::move(dims));
    case DataType::kString:
      return CopyStrings(proto, std::move(dims));
    default:
      return CopyNarrow(proto, type, std::move(dims));
  }
}

// Bytes other than 0 and 1 are undefined behaviour in a C++ bool.
absl::Status CheckBools(const Tensor& tensor) {
  if (tensor.dtype() != DataType::kBool) return absl::OkStatus();
  const auto* bytes = static_cast<const uint8_t*>(tensor.data());
  for (int64_t i = 0; i < tensor.size(); ++i) {
    if (bytes[i] > 1) {
      return absl::InvalidArgumentError(
          StrCat("element ", i, ": expected a bool, 0 or 1, got ", bytes[i]));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Tensor> TakeData(onnx::TensorProto& proto, DataType type, std::vector<int64_t> dims,
                                ExternalData& external) {
  const int fields = !proto.raw_data().empty() + (proto.float_data_size() > 0) +
                     (proto.int32_data_size() > 0) + (proto.string_data_size() > 0) +
                     (proto.int64_data_size() > 0) + (proto.double_data_size() > 0) +
                     (proto.uint64_data_size() > 0);
  const bool is_external = proto.data_location() == onnx::TensorProto::EXTERNAL;
  if (fields > (is_external ? 0 : 1)) {
    return absl::InvalidArgumentError("expected data in one place, got it in several");
  }
  if (is_external) return external.Load(proto, type, std::move(dims));
  // An empty raw_data is a tensor without elements, or a writer that sets all fields.
  const bool raw = proto.has_raw_data() && (fields == 0 || !proto.raw_data().empty());
  if (raw && type != DataType::kString) return TakeRaw(proto, type, std::move(dims));
  return TakeTyped(proto, type, std::move(dims));
}

}  // namespace

absl::StatusOr<Tensor> TakeTensor(onnx::TensorProto& proto, ExternalData& external) {
  const std::optional<DataType> type = DataTypeFromCode(proto.data_type());
  if (!type) {
    return absl::InvalidArgumentError(
        StrCat("expected a known element type, got code ", proto.data_type()));
  }
  if (proto.has_segment()) {
    return absl::UnimplementedError("expected a whole tensor, got one stored in segments");
  }
  PF_ASSIGN_OR_RETURN(Tensor tensor,
                      TakeData(proto, *type, {proto.dims().begin(), proto.dims().end()}, external));
  PF_RETURN_IF_ERROR(CheckBools(tensor));
  for (auto clear : {&onnx::TensorProto::clear_dims, &onnx::TensorProto::clear_data_type,
                     &onnx::TensorProto::clear_raw_data, &onnx::TensorProto::clear_float_data,
                     &onnx::TensorProto::clear_int32_data, &onnx::TensorProto::clear_string_data,
                     &onnx::TensorProto::clear_int64_data, &onnx::TensorProto::clear_double_data,
                     &onnx::TensorProto::clear_uint64_data, &onnx::TensorProto::clear_external_data,
                     &onnx::TensorProto::clear_data_location}) {
    (proto.*clear)();
  }
  return tensor;
}

absl::StatusOr<Tensor> ImportTensor(std::string_view bytes, std::string* name) {
  onnx::TensorProto proto;
  PF_RETURN_IF_ERROR(ParseProto(bytes, MessageDepth(0), proto));
  ExternalData none({});
  PF_ASSIGN_OR_RETURN(Tensor tensor, TakeTensor(proto, none));
  if (name != nullptr) *name = proto.name();
  return tensor;
}

}  // namespace pagefuse
