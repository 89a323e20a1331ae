// SPDX-License-Identifier: Apache-2.0
// Finds, checks and maps tensor data that lies in files beside a model file.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include <onnx/onnx_pb.h>

#include "pagefuse/ir/tensor/tensor.h"

namespace pagefuse {

// The external data files of one model. Each file is mapped once, however many tensors lie in it.
class ExternalData {
 public:
  struct Options {
    std::string base_dir;        // where locations start; empty: external data is refused
    bool map_files = true;       // false: files are read into memory
    bool allow_missing = false;  // a file that is not there gives tensors without data
  };
  explicit ExternalData(Options options) : options_(std::move(options)) {}

  // A tensor without data if its file is missing and may be. Else a view of the mapped file (a copy
  // where the offset is not aligned to the elements). InvalidArgument for a location that is empty,
  // absolute or leaves base_dir by `..`, or by a link that leaves the repository around it too
  // (onnx_io.h), for an offset or length that is no number or not inside the file, or a length that
  // is not the tensor's.
  absl::StatusOr<Tensor> Load(const onnx::TensorProto& proto, DataType type,
                              std::vector<int64_t> dims);

 private:
  absl::StatusOr<std::shared_ptr<Buffer>> Open(const std::string& location);

  Options options_;
  std::map<std::string, std::shared_ptr<Buffer>> opened_;  // by location
  std::map<std::string, std::shared_ptr<Buffer>> files_;   // by resolved path
};

}  // namespace pagefuse
