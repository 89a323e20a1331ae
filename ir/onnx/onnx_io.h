// SPDX-License-Identifier: Apache-2.0
// Imports and exports ONNX protobuf files (IR 8 to 14, any opset).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/ir/tensor/tensor.h"

namespace pagefuse {

struct ImportOptions {
  // Folder that relative `location`s of external data start from. Empty: external data is an error.
  std::string base_dir;
  // Nesting of subgraphs that is taken; deeper input is refused.
  int max_depth = 64;
  // False: external data is read into memory instead of mapped.
  bool map_files = true;
  // True: a tensor whose file is not there has type and dims, but no data (absent_data.h).
  bool allow_missing_data = false;
};

// Reads a serialised ModelProto. The result is verified for structure (names, cycles, types of
// initialisers), not for known ops. External data is mapped, not copied; locations that are
// absolute or leave base_dir (`..`, links) are refused, but for links within the repository of a
// download cache: where base_dir lies under `R/snapshots` and `R/blobs` is a folder too, a link may
// lead anywhere in R. Names, doc strings, metadata, opset imports, unknown attributes and unknown
// proto fields are kept. Every error names the place.
//
// A mapped file must keep its length as long as tensors lie in it. That every tensor lies inside
// its file is checked here; that no file has become shorter since, before a session is planned and
// before each run (FailedPrecondition). A file that is cut while a run reads it ends the program
// (SIGBUS), which only `map_files = false` rules out. A file that is replaced by another one
// (renamed over) is no matter: the old one stays as long as it is mapped.
absl::StatusOr<Model> ImportModel(std::string_view bytes, const ImportOptions& options);

// Reads a model, ONNX protobuf or ONNX text, recognised by content.
absl::StatusOr<Model> ReadModelBytes(std::string_view bytes, const ImportOptions& options);

struct LoadOptions {
  bool map_files = true;            // false: the model and its external data are read into memory
  bool allow_missing_data = false;  // as in ImportOptions
};

// The same for a file; base_dir is its folder.
absl::StatusOr<Model> LoadModel(const std::string& path, const LoadOptions& options = {});

struct ExportOptions {
  // Tensors of at least this many bytes go to `<file>.data` beside the model (aligned to 4096
  // bytes); smaller ones stay inside.
  int64_t external_data_threshold = 1 << 20;
};

// The serialised ModelProto with all tensors inside. ResourceExhausted over protobuf's 2 GiB.
absl::StatusOr<std::string> ExportModel(const Model& model);
// Writes `path`, and `path`.data if a tensor is large. Writes to temporary files first, so that a
// failure leaves old files whole.
absl::Status SaveModel(const Model& model, const std::string& path,
                       const ExportOptions& options = {});

// A serialised TensorProto, as in test_data_set_N/input_K.pb; `name` (may be null) gets the
// tensor's name.
absl::StatusOr<Tensor> ImportTensor(std::string_view bytes, std::string* name);
absl::StatusOr<Tensor> LoadTensor(const std::string& path, std::string* name);
absl::Status SaveTensor(const Tensor& tensor, std::string_view name, const std::string& path);

// The whole file. NotFound with the path.
absl::StatusOr<std::string> ReadFile(const std::string& path);

}  // namespace pagefuse
