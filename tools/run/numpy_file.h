// SPDX-License-Identifier: Apache-2.0
// Reads and writes NumPy's files: .npy, an array, and .npz, arrays by name in a zip file.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ir/tensor/tensor.h"

namespace pagefuse::tools {

using NamedTensor = std::pair<std::string, Tensor>;

// By what a file begins with, whatever it is called.
bool IsNpy(std::string_view bytes);
bool IsNpz(std::string_view bytes);

// Arrays of the types that ONNX has too, in C's order or Fortran's; InvalidArgument says what was
// expected and what is there, and Unimplemented is for types that ONNX lacks and for big-endian ones.
absl::StatusOr<Tensor> ParseNpy(std::string_view bytes);
// In the order of the file. Errors name path and array.
absl::StatusOr<std::vector<NamedTensor>> LoadNpz(const std::string& path);

// OK if NumPy has the type; otherwise Unimplemented naming it.
absl::Status CheckNumpyType(std::string_view name, DataType type);
// The tensor as a .npy file.
absl::StatusOr<std::string> NpyBytes(const Tensor& tensor);
// Uncompressed, as numpy.savez writes it. The file is there whole or not at all.
absl::Status SaveNpz(const std::vector<NamedTensor>& tensors, const std::string& path);

}  // namespace pagefuse::tools
