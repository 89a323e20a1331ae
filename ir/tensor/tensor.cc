// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ir/tensor/tensor.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <type_traits>
#include <utility>

#include "pagefuse/base/packed_types.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/tensor/absent_tensor.h"
#include "pagefuse/ir/tensor/memory_budget.h"
#include "pagefuse/ir/tensor/tensor_of.h"

namespace pagefuse {
namespace {

template <typename T>
constexpr DataType CodeOf() {
  if constexpr (std::is_same_v<T, float>) return DataType::kFloat;
  if constexpr (std::is_same_v<T, double>) return DataType::kDouble;
  if constexpr (std::is_same_v<T, int8_t>) return DataType::kInt8;
  if constexpr (std::is_same_v<T, int16_t>) return DataType::kInt16;
  if constexpr (std::is_same_v<T, int32_t>) return DataType::kInt32;
  if constexpr (std::is_same_v<T, int64_t>) return DataType::kInt64;
  if constexpr (std::is_same_v<T, uint8_t>) return DataType::kUint8;
  if constexpr (std::is_same_v<T, uint16_t>) return DataType::kUint16;
  if constexpr (std::is_same_v<T, uint32_t>) return DataType::kUint32;
  if constexpr (std::is_same_v<T, uint64_t>) return DataType::kUint64;
  if constexpr (std::is_same_v<T, bool>) return DataType::kBool;
  return DataType::kUndefined;
}

absl::Status TooLarge(DataType type, const std::vector<int64_t>& dims) {
  return absl::InvalidArgumentError(StrCat("expected dims of a tensor that fits in memory, got ",
                                           DataTypeName(type), DimsToString(dims)));
}

absl::StatusOr<int64_t> CheckedCount(DataType type, const std::vector<int64_t>& dims) {
  const std::optional<int64_t> count = ElementCount(dims);
  if (!count) return TooLarge(type, dims);
  return *count;
}

// Reads elements that need not be aligned.
template <typename T>
absl::StatusOr<std::vector<int64_t>> ReadIntegers(const Tensor& tensor) {
  std::vector<int64_t> result(tensor.size());
  const auto* bytes = static_cast<const char*>(tensor.data());
  for (int64_t i = 0; i < tensor.size(); ++i) {
    T value;
    std::memcpy(&value, bytes + i * sizeof(T), sizeof(T));
    if (std::is_same_v<T, uint64_t> &&
        static_cast<uint64_t>(value) > std::numeric_limits<int64_t>::max()) {
      return absl::InvalidArgumentError(
          StrCat("element ", i, ": expected a value that fits in int64, got ", value));
    }
    result[i] = static_cast<int64_t>(value);
  }
  return result;
}

std::vector<int64_t> ReadPacked(const Tensor& tensor) {
  std::vector<int64_t> result(tensor.size());
  const auto* bytes = static_cast<const uint8_t*>(tensor.data());
  const int bits = BitWidth(tensor.dtype());
  const int sign = IsSigned(tensor.dtype()) ? 1 << (bits - 1) : 0;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const int code = (bytes[i * bits / 8] >> (i * bits % 8)) & ((1 << bits) - 1);
    result[i] = (code ^ sign) - sign;
  }
  return result;
}

}  // namespace

absl::StatusOr<int64_t> ByteSize(DataType type, const std::vector<int64_t>& dims) {
  PF_ASSIGN_OR_RETURN(const int64_t count, CheckedCount(type, dims));
  const int bits = BitWidth(type);
  if (IsPacked(type)) return count / (8 / bits) + (count % (8 / bits) != 0);
  const std::optional<int64_t> bytes = CheckedMul(count, bits / 8);
  if (!bytes) return TooLarge(type, dims);
  return *bytes;
}

Tensor::Tensor() = default;
Tensor::Tensor(const Tensor&) = default;
Tensor::Tensor(Tensor&&) noexcept = default;
Tensor& Tensor::operator=(const Tensor&) = default;
Tensor& Tensor::operator=(Tensor&&) noexcept = default;
Tensor::~Tensor() = default;

absl::StatusOr<Tensor> Tensor::Allocate(DataType type, std::vector<int64_t> dims,
                                        Allocator& allocator) {
  if (type == DataType::kString) {
    PF_ASSIGN_OR_RETURN(const int64_t count, CheckedCount(type, dims));
    // A string takes 32 bytes even when it is empty, hence the limit.
    if (count > std::numeric_limits<int32_t>::max()) {
      return absl::ResourceExhaustedError(StrCat("no memory for ", count, " strings"));
    }
    return Strings(std::move(dims), std::vector<std::string>(count));
  }
  PF_ASSIGN_OR_RETURN(const int64_t bytes, ByteSize(type, dims));
  PF_ASSIGN_OR_RETURN(std::shared_ptr<Buffer> buffer, Buffer::Allocate(bytes, allocator));
  return View(type, std::move(dims), std::move(buffer));
}

absl::StatusOr<Tensor> Tensor::View(DataType type, std::vector<int64_t> dims,
                                    std::shared_ptr<Buffer> buffer, size_t offset) {
  if (BitWidth(type) == 0) {
    return absl::InvalidArgumentError(
        StrCat("expected an element type with a size in bytes, got ", DataTypeName(type)));
  }
  PF_ASSIGN_OR_RETURN(const int64_t bytes, ByteSize(type, dims));
  const size_t available = buffer == nullptr ? 0 : buffer->size();
  if (offset > available || static_cast<size_t>(bytes) > available - offset) {
    return absl::InvalidArgumentError(StrCat("expected ", bytes, " bytes at offset ", offset,
                                             " for ", DataTypeName(type), DimsToString(dims),
                                             ", got a buffer of ", available, " bytes"));
  }
  Tensor tensor;
  tensor.dtype_ = type;
  tensor.size_ = *ElementCount(dims);
  tensor.dims_ = std::move(dims);
  tensor.byte_size_ = bytes;
  tensor.offset_ = offset;
  tensor.buffer_ = std::move(buffer);
  return tensor;
}

absl::StatusOr<Tensor> Tensor::Blocks(DataType type, std::vector<int64_t> dims,
                                      std::shared_ptr<Buffer> buffer, size_t offset,
                                      int64_t stride) {
  std::vector<int64_t> block = dims;
  if (block.empty()) return absl::InvalidArgumentError("expected dims of blocks, got none");
  const int64_t count = std::exchange(block[0], std::min<int64_t>(block[0], 1));
  if (count == 0) offset = 0;
  PF_ASSIGN_OR_RETURN(Tensor tensor, View(type, std::move(block), buffer, offset));
  const size_t available = buffer == nullptr ? 0 : buffer->size() - offset;
  const auto end = count < 1 ? std::optional<int64_t>(0) : CheckedMul(count - 1, stride);
  const bool fits =
      count < 1 || (end && static_cast<size_t>(*end) + tensor.byte_size_ <= available);
  if (count < 0 || stride < tensor.byte_size_ || !fits) {
    return absl::InvalidArgumentError(StrCat("expected room for ", count, " blocks of ",
                                             tensor.byte_size_, " bytes, ", stride,
                                             " bytes apart, got ", available, " bytes"));
  }
  tensor.size_ *= count;
  tensor.byte_size_ *= count;
  tensor.dims_ = std::move(dims);
  tensor.block_stride_ = stride;
  return tensor;
}

template <typename T>
absl::StatusOr<Tensor> TensorOf(std::vector<int64_t> dims, const std::vector<T>& values) {
  PF_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(CodeOf<T>(), std::move(dims)));
  if (tensor.size() != static_cast<int64_t>(values.size())) {
    return absl::InvalidArgumentError(StrCat("expected ", tensor.size(), " values of a tensor ",
                                             DimsToString(tensor.dims()), ", got ", values.size()));
  }
  std::copy(values.begin(), values.end(), static_cast<T*>(tensor.mutable_data()));
  return tensor;
}

template <typename T>
Tensor Tensor::Of(std::vector<int64_t> dims, const std::vector<T>& values) {
  // The numbers that the program itself writes, as axes and sizes, count against nobody's budget.
  const MemoryBudgetScope nobodys(nullptr);
  absl::StatusOr<Tensor> tensor = TensorOf(std::move(dims), values);
  if (absl::IsResourceExhausted(tensor.status())) throw std::bad_alloc();
  PF_CHECK(tensor.ok());
  return *std::move(tensor);
}

#define PF_TENSOR_OF(type)                                                                  \
  template absl::StatusOr<Tensor> TensorOf(std::vector<int64_t>, const std::vector<type>&); \
  template Tensor Tensor::Of(std::vector<int64_t>, const std::vector<type>&)
PF_TENSOR_OF(float);
PF_TENSOR_OF(double);
PF_TENSOR_OF(int8_t);
PF_TENSOR_OF(int16_t);
PF_TENSOR_OF(int32_t);
PF_TENSOR_OF(int64_t);
PF_TENSOR_OF(uint8_t);
PF_TENSOR_OF(uint16_t);
PF_TENSOR_OF(uint32_t);
PF_TENSOR_OF(uint64_t);
PF_TENSOR_OF(bool);
#undef PF_TENSOR_OF

Tensor Tensor::Strings(std::vector<int64_t> dims, std::vector<std::string> values) {
  const std::optional<int64_t> count = ElementCount(dims);
  PF_CHECK(count && *count == static_cast<int64_t>(values.size()));
  Tensor tensor;
  tensor.dtype_ = DataType::kString;
  tensor.dims_ = std::move(dims);
  tensor.size_ = *count;
  tensor.strings_ = std::make_shared<const std::vector<std::string>>(std::move(values));
  return tensor;
}

absl::StatusOr<Tensor> Tensor::Reshaped(std::vector<int64_t> dims) const {
  const std::optional<int64_t> count = ElementCount(dims);
  if (!count || *count != size_ || !defined()) {
    return absl::InvalidArgumentError(StrCat("expected dims of ", size_, " elements like ",
                                             DimsToString(dims_), ", got ", DimsToString(dims)));
  }
  if (block_stride_ > 0 && dims != dims_) {
    return absl::InvalidArgumentError(
        StrCat("blocks that do not lie one behind the other: expected ", DimsToString(dims_),
               ", got ", DimsToString(dims)));
  }
  Tensor result = *this;
  result.dims_ = std::move(dims);
  return result;
}

absl::StatusOr<Tensor> Tensor::Clone() const {
  if (BitWidth(dtype_) == 0) return *this;  // strings are immutable
  PF_ASSIGN_OR_RETURN(Tensor copy, Allocate(dtype_, dims_));
  if (byte_size_ == 0) return copy;
  const int64_t count = block_stride_ > 0 ? dims_[0] : 1;
  const int64_t bytes = byte_size_ / count;
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(static_cast<std::byte*>(copy.mutable_data()) + i * bytes,
                static_cast<const std::byte*>(data()) + i * block_stride_, bytes);
  }
  return copy;
}

bool Tensor::IdenticalTo(const Tensor& other) const {
  if (dtype_ != other.dtype_ || dims_ != other.dims_) return false;
  if (dtype_ == DataType::kString) return *strings_ == *other.strings_;
  const int64_t count = block_stride_ > 0 || other.block_stride_ > 0 ? dims_[0] : 1;
  const int64_t bytes = byte_size_ / std::max<int64_t>(count, 1);
  const auto at = [&](const Tensor& tensor, int64_t i) {
    const int64_t stride = tensor.block_stride_ > 0 ? tensor.block_stride_ : bytes;
    return static_cast<const std::byte*>(tensor.data()) + i * stride;
  };
  for (int64_t i = 0; bytes > 0 && i < count; ++i) {
    if (std::memcmp(at(*this, i), at(other, i), bytes) != 0) return false;
  }
  return true;
}

absl::StatusOr<std::vector<int64_t>> IntegerValues(const Tensor& tensor) {
  if (IsAbsent(tensor)) return absl::InvalidArgumentError("the data was left out");
  switch (tensor.dtype()) {
    case DataType::kBool:
    case DataType::kUint8:
      return ReadIntegers<uint8_t>(tensor);
    case DataType::kInt8:
      return ReadIntegers<int8_t>(tensor);
    case DataType::kUint16:
      return ReadIntegers<uint16_t>(tensor);
    case DataType::kInt16:
      return ReadIntegers<int16_t>(tensor);
    case DataType::kUint32:
      return ReadIntegers<uint32_t>(tensor);
    case DataType::kInt32:
      return ReadIntegers<int32_t>(tensor);
    case DataType::kUint64:
      return ReadIntegers<uint64_t>(tensor);
    case DataType::kInt64:
      return ReadIntegers<int64_t>(tensor);
    case DataType::kInt4:
    case DataType::kUint4:
      return ReadPacked(tensor);
    default:
      if (IsInteger(tensor.dtype()) && IsPacked(tensor.dtype())) return ReadPacked(tensor);
      return absl::InvalidArgumentError(
          StrCat("expected an integer tensor, got ", DataTypeName(tensor.dtype())));
  }
}

}  // namespace pagefuse
