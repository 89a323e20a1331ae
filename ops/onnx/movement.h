// SPDX-License-Identifier: Apache-2.0
// What the data-movement ops share: type lists, axes, strided copies, packed elements, errors of
// values.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/base/packed_types.h"
#include "pagefuse/ops/kernels/numeric/packing.h"
#include "pagefuse/ops/kernels/numeric/small_float.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::onnx_ops {

// Every type but strings; and those without the floats and integers narrower than ONNX 1.12 knew,
// which indexing and joining ops do not take in any opset.
std::vector<DataType> AllTypes();
std::vector<DataType> WideTypes();
std::vector<DataType> NumberTypes();  // WideTypes without bool and complex
std::vector<DataType> IndexTypes();   // int32 and int64

// --- shape inference ---
// An axis in [0, rank). InvalidArgument if it is not in [-rank, rank).
absl::StatusOr<int> ResolveAxis(const ShapeContext& context, int64_t axis, int rank);
// The same for a list, which must not name an axis twice.
absl::StatusOr<std::vector<int>> ResolveAxes(const ShapeContext& context,
                                             const std::vector<int64_t>& axes, int rank);
// The attribute "axis", resolved.
absl::StatusOr<int> AxisAttribute(const ShapeContext& context, int rank, int64_t default_value);
// Output 0 has input 0's shape and type.
absl::Status InferLikeInput(ShapeContext& context);
// The product of dims [begin, end).
Dim Product(const Shape& shape, int begin, int end);

// --- lists that are inputs, and attributes in older opsets ---
struct MovedList {
  int input = 0;
  std::string_view name;  // of the input and of the attribute
};
// Whether the node has it, in the form of its opset (moved_attributes.h).
absl::StatusOr<bool> IsGiven(const ShapeContext& context, const MovedList& list);
// Its elements as far as they are known, or if all are; an attribute may be one int.
std::optional<std::vector<Dim>> DimsOf(const ShapeContext& context, const MovedList& list);
std::optional<std::vector<int64_t>> IntsOf(const ShapeContext& context, const MovedList& list);
// Its elements at run time; none if it is not given.
std::vector<int64_t> IndexValues(const KernelArgs& args, const MovedList& list);

// --- kernels ---
// A negative index counts from the end.
inline int64_t FromFront(int64_t index, int64_t size) { return index < 0 ? index + size : index; }
// An axis that inference has checked.
inline int KernelAxis(int64_t axis, size_t rank) {
  return static_cast<int>(axis < 0 ? axis + static_cast<int64_t>(rank) : axis);
}
// The attribute "axis" of a tensor with these dims.
absl::StatusOr<int> AxisOf(const Node& node, const std::vector<int64_t>& dims,
                           int64_t default_value);
// What an element is added up and compared as.
template <typename T>
using Wide = std::conditional_t<kIsSmallFloat<T>, float, T>;
// The values of an int32 or int64 tensor.
std::vector<int64_t> IndexValues(const TensorArg& arg);
// The product of dims [begin, end).
int64_t Product(const std::vector<int64_t>& dims, size_t begin, size_t end);
std::vector<int64_t> RowMajorStrides(const std::vector<int64_t>& dims);
// InvalidArgument: `node "x" (Gather): input 1 "indices": <what>`.
absl::Status ValueError(const KernelArgs& args, int input, std::string_view name,
                        std::string_view what);
// ValueError unless every element of input `input` is in [low, high).
absl::Status CheckIndexRange(const KernelArgs& args, int input, std::string_view name, int64_t low,
                             int64_t high);

// --- indices in input 1 of elements of input 0 ---
// One for each element that is picked along the attribute "axis", 0 by default: their shape, and
// their values.
absl::Status CheckElementIndices(const ShapeContext& context);
absl::Status CheckAxisIndices(const KernelArgs& args);
// Tuples in the last dim, int64, of axes from `batch_dims` on: their values.
absl::Status CheckIndexTuples(const KernelArgs& args, int64_t batch_dims);

// Moves an element of 16 bytes (complex128).
using Bytes16 = std::array<uint64_t, 2>;
// Calls f(static_cast<T*>(nullptr)) with an unsigned type T of 1, 2, 4, 8 or 16 bytes.
template <typename F>
auto DispatchSize(int64_t element_size, const F& f) {
  switch (element_size) {
    case 1:
      return f(static_cast<uint8_t*>(nullptr));
    case 2:
      return f(static_cast<uint16_t*>(nullptr));
    case 4:
      return f(static_cast<uint32_t*>(nullptr));
    case 8:
      return f(static_cast<uint64_t*>(nullptr));
    default:
      return f(static_cast<Bytes16*>(nullptr));
  }
}

// A box of elements to copy between two strided places. Strides count elements, may be 0 or
// negative in the source, and must not let written elements overlap in the destination.
struct StridedBox {
  std::vector<int64_t> dims;
  std::vector<int64_t> from_strides;
  std::vector<int64_t> to_strides;
};
// Copies the box; `from` and `to` point to the elements at its origin. `element_size`: 1, 2, 4, 8
// or 16 bytes. Runs are memcpys, transposed planes go by tiles that fit the cache; large boxes use
// all threads.
void CopyBox(StridedBox box, int64_t element_size, const void* from, void* to);

// Bytes of an element of a type that is not packed.
inline int64_t ElementSize(DataType type) { return BitWidth(type) / 8; }

// Calls run(element_size, from, to) on input 0 and output 0; packed elements are spread to one a
// byte around it.
template <typename F>
absl::Status MoveElements(KernelArgs& args, const F& run) {
  const TensorArg& x = args.input(0);
  const TensorArg& y = args.output(0);
  if (!IsPacked(x.dtype)) {
    run(ElementSize(x.dtype), static_cast<const char*>(x.data), static_cast<char*>(y.data));
    return absl::OkStatus();
  }
  auto* from = static_cast<uint8_t*>(args.scratch->Get(x.size(), 0));
  auto* to = static_cast<uint8_t*>(args.scratch->Get(y.size(), 1));
  const bool quarters = BitWidth(x.dtype) == 2;
  (quarters ? UnpackBits<2> : UnpackBits<4>)(x.as<uint8_t>(), x.size(), from);
  run(int64_t{1}, reinterpret_cast<const char*>(from), reinterpret_cast<char*>(to));
  (quarters ? PackBits<2> : PackBits<4>)(to, y.size(), y.as<uint8_t>());
  return absl::OkStatus();
}

// Copies input 0's bytes to output 0, unless they are the same memory: the kernel of ops that only
// change the shape.
absl::Status CopyBytes(KernelArgs& args);

}  // namespace pagefuse::onnx_ops
