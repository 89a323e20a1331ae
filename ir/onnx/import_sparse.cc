// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/import_tensor.h"
#include "pagefuse/ir/onnx/onnx_proto.h"

namespace pagefuse {
namespace {

// A few sparse bytes may claim any dense size; a dense form over this is refused.
constexpr int64_t kMaxDenseBytes = int64_t{1} << 30;

// The place of entry `i` in the dense tensor: indices are [NNZ], places already, or [NNZ, rank]
// coordinates.
absl::StatusOr<int64_t> Place(const Tensor& indices, int64_t i, const std::vector<int64_t>& dims,
                              int64_t size) {
  const int64_t* values = indices.values<int64_t>().data();
  int64_t place = 0;
  if (indices.rank() == 1) {
    place = values[i];
  } else {
    const auto rank = static_cast<int64_t>(dims.size());
    for (int64_t axis = 0; axis < rank; ++axis) {
      const int64_t coordinate = values[i * rank + axis];
      if (coordinate < 0 || coordinate >= dims[axis]) {
        return absl::InvalidArgumentError(StrCat("sparse entry ", i, ": index ", coordinate,
                                                 " is outside of ", DimsToString(dims)));
      }
      place = place * dims[axis] + coordinate;
    }
  }
  if (place < 0 || place >= size) {
    return absl::InvalidArgumentError(
        StrCat("sparse entry ", i, ": index ", place, " is outside of ", DimsToString(dims)));
  }
  return place;
}

absl::Status CheckSparse(const Tensor& values, const Tensor& indices,
                         const std::vector<int64_t>& dims) {
  if (values.rank() != 1 || BitWidth(values.dtype()) < 8) {
    return absl::InvalidArgumentError(
        StrCat("sparse values: expected a list of numbers of whole bytes, got ",
               DataTypeName(values.dtype()), DimsToString(values.dims())));
  }
  const auto rank = static_cast<int64_t>(dims.size());
  const std::vector<int64_t> flat = {values.size()};
  const std::vector<int64_t> coordinates = {values.size(), rank};
  if (indices.dtype() != DataType::kInt64 ||
      (indices.dims() != flat && indices.dims() != coordinates)) {
    return absl::InvalidArgumentError(StrCat("sparse indices: expected int64", DimsToString(flat),
                                             " or int64", DimsToString(coordinates), ", got ",
                                             DataTypeName(indices.dtype()),
                                             DimsToString(indices.dims())));
  }
  PF_ASSIGN_OR_RETURN(const int64_t bytes, ByteSize(values.dtype(), dims));
  if (bytes <= kMaxDenseBytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(StrCat("sparse tensor: the dense form of ",
                                             DimsToString(dims), " takes ", bytes,
                                             " bytes, at most ", kMaxDenseBytes, " are allowed"));
}

}  // namespace

absl::StatusOr<Tensor> ImportSparse(onnx::SparseTensorProto proto, ExternalData& external) {
  absl::StatusOr<Tensor> values = TakeTensor(*proto.mutable_values(), external);
  PF_RETURN_IF_ERROR(AtPlace("sparse values", values.status()));
  absl::StatusOr<Tensor> indices = TakeTensor(*proto.mutable_indices(), external);
  PF_RETURN_IF_ERROR(AtPlace("sparse indices", indices.status()));
  const std::vector<int64_t> dims(proto.dims().begin(), proto.dims().end());
  PF_RETURN_IF_ERROR(CheckSparse(*values, *indices, dims));
  PF_ASSIGN_OR_RETURN(Tensor dense, Tensor::Allocate(values->dtype(), dims));
  const int width = BitWidth(values->dtype()) / 8;
  int64_t last = -1;
  for (int64_t i = 0; i < values->size(); ++i) {
    PF_ASSIGN_OR_RETURN(const int64_t place, Place(*indices, i, dims, dense.size()));
    if (place <= last) {
      return absl::InvalidArgumentError(
          StrCat("sparse entry ", i, ": indices are not sorted, or one is there twice"));
    }
    last = place;
    std::memcpy(static_cast<char*>(dense.mutable_data()) + place * width,
                static_cast<const char*>(values->data()) + i * width, width);
  }
  return dense;
}

}  // namespace pagefuse
