// SPDX-License-Identifier: Apache-2.0
// Loads ONNX Runtime from a path at run time and runs its graphs beside ours.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plugin/ort/ort_abi.h"

#include "pagefuse/ir/tensor/tensor.h"

namespace pagefuse::tools {

// A library of ONNX Runtime. Stays loaded until the program ends: its threads may outlive a
// session.
class OrtLibrary {
 public:
  // `path`: the shared object (libonnxruntime.so.1). NotFound or InvalidArgument in one sentence:
  // no such file, not ONNX Runtime, or a release older than 1.17.
  static absl::StatusOr<std::shared_ptr<OrtLibrary>> Load(const std::string& path);
  ~OrtLibrary();

  const std::string& version() const { return version_; }
  // Lines that a library of custom ops wrote to the log since they were taken last.
  std::vector<std::string> TakeMessages();
  ort::Api* api() const { return api_; }
  const ort::Env* env() const { return env_; }
  const ort::MemoryInfo* memory() const { return memory_; }
  // OK for null; takes what it gets. The message is ONNX Runtime's own.
  absl::Status ToStatus(ort::Status* status) const;

 private:
  OrtLibrary() = default;
  static absl::StatusOr<std::shared_ptr<OrtLibrary>> Open(const std::string& path);
  static void Keep(void* library, ort::LoggingLevel level, const char* category, const char* id,
                   const char* place, const char* message);

  std::mutex mutex_;
  std::vector<std::string> messages_;
  ort::Api* api_ = nullptr;
  ort::Env* env_ = nullptr;
  ort::MemoryInfo* memory_ = nullptr;
  std::string version_;
};

struct OrtSessionOptions {
  std::string custom_ops = {};                     // a library with custom ops; empty: none
  std::map<std::string, std::string> config = {};  // entries of the session's configuration
  int threads = 0;                                 // 0: as ONNX Runtime likes
};

// A model in ONNX Runtime. Not thread-safe.
class OrtSession {
 public:
  // ONNX Runtime reads the file itself. Errors are those it gives.
  static absl::StatusOr<std::unique_ptr<OrtSession>> Create(std::shared_ptr<OrtLibrary> library,
                                                            const std::string& model,
                                                            const OrtSessionOptions& options);
  ~OrtSession();

  // The time that the library of custom ops took to be registered.
  double registered_ms() const { return registered_ms_; }

  // Runs the model. An output in `bound` is written to that tensor's memory, which may be that of a
  // feed: then ONNX Runtime computes in place what it can. Others get memory of their own.
  // Outputs in the order of `outputs`.
  absl::StatusOr<std::vector<Tensor>> Run(const std::map<std::string, Tensor>& feeds,
                                          const std::vector<std::string>& outputs,
                                          const std::map<std::string, Tensor>& bound = {});

 private:
  struct Values;
  explicit OrtSession(std::shared_ptr<OrtLibrary> library) : library_(std::move(library)) {}
  absl::StatusOr<ort::Value*> Wrap(const std::string& name, const Tensor& tensor, Values& values);
  absl::StatusOr<Tensor> CopyOut(ort::Value* value);

  absl::Status Register(const OrtSessionOptions& options, ort::SessionOptions* made);

  std::shared_ptr<OrtLibrary> library_;
  ort::Session* session_ = nullptr;
  double registered_ms_ = 0;
};

}  // namespace pagefuse::tools
