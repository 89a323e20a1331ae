// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/status_place.h"
#include "pagefuse/ir/onnx/foreign_file.h"
#include "pagefuse/ir/onnx/onnx_io.h"

namespace pagefuse {
namespace {

std::string_view Bytes(const Buffer& buffer) {
  return {reinterpret_cast<const char*>(buffer.data()), buffer.size()};
}

}  // namespace

absl::StatusOr<Tensor> LoadTensor(const std::string& path, std::string* name) {
  PF_ASSIGN_OR_RETURN(const std::shared_ptr<Buffer> file, Buffer::ReadFile(path));
  absl::StatusOr<Tensor> tensor = ImportTensor(Bytes(*file), name);
  PF_RETURN_IF_ERROR(InFile(path, tensor.status()));
  return tensor;
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  PF_ASSIGN_OR_RETURN(const std::shared_ptr<Buffer> file, Buffer::ReadFile(path));
  PF_RETURN_IF_ERROR(InFile(path, CheckIsNoPointer(Bytes(*file))));
  return std::string(Bytes(*file));
}

}  // namespace pagefuse
