// Tensor data beside a model file: found, checked and mapped.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include <onnx/onnx_pb.h>

#include "pagefuse/ir/tensor.h"

namespace pagefuse {

// The external data files of one model. Each file is mapped once, however many tensors lie in it.
class ExternalData {
 public:
  // `base_dir`: where locations start. Empty: external data is refused.
  explicit ExternalData(std::string base_dir) : base_dir_(std::move(base_dir)) {}

  // A view of the mapped file (a copy where the offset is not aligned to the elements).
  // InvalidArgument for a location that is empty, absolute or leaves base_dir (by `..` or links),
  // for an offset or length that is no number or not inside the file, or a length that is not the
  // tensor's.
  absl::StatusOr<Tensor> Load(const onnx::TensorProto& proto, DataType type,
                              std::vector<int64_t> dims);

 private:
  absl::StatusOr<std::shared_ptr<Buffer>> Map(const std::string& location);

  std::string base_dir_;
  std::map<std::string, std::shared_ptr<Buffer>> mapped_;  // by location
  std::map<std::string, std::shared_ptr<Buffer>> files_;   // by resolved path
};

}  // namespace pagefuse
