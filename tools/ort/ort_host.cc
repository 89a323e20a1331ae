// SPDX-License-Identifier: Apache-2.0
#include "tools/ort/ort_host.h"

#include <chrono>
#include <cstring>
#include <filesystem>
#include <utility>

#include <dlfcn.h>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse::tools {
namespace {

// A device allocator and the default memory of the processor.
constexpr int kDeviceAllocator = 0;
constexpr int kDefaultMemory = 0;

}  // namespace

absl::StatusOr<std::shared_ptr<OrtLibrary>> OrtLibrary::Load(const std::string& path) {
  // A process has one environment of a library, and the log is part of it.
  static std::mutex mutex;
  static auto* const loaded = new std::map<std::string, std::weak_ptr<OrtLibrary>>;
  const std::lock_guard<std::mutex> lock(mutex);
  std::weak_ptr<OrtLibrary>& known = (*loaded)[std::filesystem::absolute(path).string()];
  if (std::shared_ptr<OrtLibrary> library = known.lock()) return library;
  PF_ASSIGN_OR_RETURN(std::shared_ptr<OrtLibrary> library, Open(path));
  known = library;
  return library;
}

absl::StatusOr<std::shared_ptr<OrtLibrary>> OrtLibrary::Open(const std::string& path) {
  if (!std::filesystem::exists(path)) {
    return absl::NotFoundError(StrCat("no ONNX Runtime at \"", path, "\""));
  }
  // An absolute path: a bare name would be looked for where the system keeps libraries.
  void* handle = dlopen(std::filesystem::absolute(path).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return absl::InvalidArgumentError(StrCat("cannot load ", dlerror()));
  auto* get_base = reinterpret_cast<ort::GetApiBase*>(dlsym(handle, ort::kGetApiBase));
  if (get_base == nullptr) {
    return absl::InvalidArgumentError(
        StrCat("\"", path, "\" is no library of ONNX Runtime: it has no ", ort::kGetApiBase));
  }
  auto library = std::shared_ptr<OrtLibrary>(new OrtLibrary);
  library->version_ = get_base()->version();
  library->api_ = get_base()->get_api(ort::kApiVersion);
  if (library->api_ == nullptr) {
    return absl::InvalidArgumentError(StrCat("\"", path, "\" is ONNX Runtime ", library->version_,
                                             ", expected 1.", ort::kApiVersion, " or newer"));
  }
  ort::Api* api = library->api_;
  PF_RETURN_IF_ERROR(library->ToStatus(ort::kCreateEnvWithCustomLogger(
      api, Keep, library.get(), ort::LoggingLevel::kWarning, "pagefuse", &library->env_)));
  PF_RETURN_IF_ERROR(library->ToStatus(
      ort::kCreateCpuMemoryInfo(api, kDeviceAllocator, kDefaultMemory, &library->memory_)));
  return library;
}

// NOLINTNEXTLINE(readability-function-size): ONNX Runtime says what it is given.
void OrtLibrary::Keep(void* library, ort::LoggingLevel /*level*/, const char* /*category*/,
                      const char* /*id*/, const char* place, const char* message) {
  // What ONNX Runtime itself has to say of an error comes as a status.
  if (std::strstr(place, ort::kLogFile) == nullptr) return;
  auto& self = *static_cast<OrtLibrary*>(library);
  const std::lock_guard<std::mutex> lock(self.mutex_);
  self.messages_.emplace_back(message);
}

std::vector<std::string> OrtLibrary::TakeMessages() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(messages_, {});
}

OrtLibrary::~OrtLibrary() {
  if (memory_ != nullptr) ort::kReleaseMemoryInfo(api_, memory_);
  if (env_ != nullptr) ort::kReleaseEnv(api_, env_);
}

absl::Status OrtLibrary::ToStatus(ort::Status* status) const {
  if (status == nullptr) return absl::OkStatus();
  const std::string message = ort::kGetErrorMessage(api_, status);
  ort::kReleaseStatus(api_, status);
  return absl::InvalidArgumentError(StrCat("ONNX Runtime ", version_, ": ", message));
}

absl::StatusOr<std::unique_ptr<OrtSession>> OrtSession::Create(std::shared_ptr<OrtLibrary> library,
                                                               const std::string& model,
                                                               const OrtSessionOptions& options) {
  auto session = std::unique_ptr<OrtSession>(new OrtSession(std::move(library)));
  const OrtLibrary& lib = *session->library_;
  ort::Api* api = lib.api();
  ort::SessionOptions* made = nullptr;
  PF_RETURN_IF_ERROR(lib.ToStatus(ort::kCreateSessionOptions(api, &made)));
  const auto fill = [&]() -> absl::Status {
    if (options.threads > 0) {
      PF_RETURN_IF_ERROR(lib.ToStatus(ort::kSetIntraOpNumThreads(api, made, options.threads)));
    }
    PF_RETURN_IF_ERROR(session->Register(options, made));
    return lib.ToStatus(
        ort::kCreateSession(api, lib.env(), model.c_str(), made, &session->session_));
  };
  const absl::Status status = fill();
  ort::kReleaseSessionOptions(api, made);
  PF_RETURN_IF_ERROR(status);
  return session;
}

absl::Status OrtSession::Register(const OrtSessionOptions& options, ort::SessionOptions* made) {
  ort::Api* api = library_->api();
  for (const auto& [key, value] : options.config) {
    PF_RETURN_IF_ERROR(
        library_->ToStatus(ort::kAddSessionConfigEntry(api, made, key.c_str(), value.c_str())));
  }
  if (options.custom_ops.empty()) return absl::OkStatus();
  const auto start = std::chrono::steady_clock::now();
  void* handle = nullptr;
  PF_RETURN_IF_ERROR(library_->ToStatus(
      ort::kRegisterCustomOpsLibrary(api, made, options.custom_ops.c_str(), &handle)));
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
  registered_ms_ = time.count();
  return absl::OkStatus();
}

OrtSession::~OrtSession() {
  if (session_ != nullptr) ort::kReleaseSession(library_->api(), session_);
}

// Values of ONNX Runtime, released together; tensors that share memory share one.
struct OrtSession::Values {
  ~Values() {
    for (ort::Value* value : owned) ort::kReleaseValue(api, value);
  }
  ort::Api* api;
  std::vector<ort::Value*> owned = {};
  std::map<const void*, ort::Value*> by_data = {};
};

absl::StatusOr<ort::Value*> OrtSession::Wrap(const std::string& name, const Tensor& tensor,
                                             Values& values) {
  if (tensor.dtype() == DataType::kString) {
    return absl::UnimplementedError(StrCat("\"", name, "\": strings are not passed on"));
  }
  // A feed that is bound to an output as well is one value, by which ONNX Runtime knows it.
  const bool shared = tensor.byte_size() > 0 && values.by_data.count(tensor.data()) > 0;
  if (shared) return values.by_data[tensor.data()];
  ort::Value* value = nullptr;
  PF_RETURN_IF_ERROR(library_->ToStatus(ort::kCreateTensorWithDataAsOrtValue(
      library_->api(), library_->memory(), const_cast<void*>(tensor.data()), tensor.byte_size(),
      tensor.dims().data(), tensor.dims().size(), static_cast<ort::ElementType>(tensor.dtype()),
      &value)));
  values.owned.push_back(value);
  if (tensor.byte_size() > 0) values.by_data[tensor.data()] = value;
  return value;
}

absl::StatusOr<Tensor> OrtSession::CopyOut(ort::Value* value) {
  ort::Api* api = library_->api();
  ort::TensorTypeAndShapeInfo* info = nullptr;
  PF_RETURN_IF_ERROR(library_->ToStatus(ort::kGetTensorTypeAndShape(api, value, &info)));
  const auto read = [&]() -> absl::StatusOr<Tensor> {
    ort::ElementType type = 0;
    size_t rank = 0;
    PF_RETURN_IF_ERROR(library_->ToStatus(ort::kGetTensorElementType(api, info, &type)));
    PF_RETURN_IF_ERROR(library_->ToStatus(ort::kGetDimensionsCount(api, info, &rank)));
    std::vector<int64_t> dims(rank);
    PF_RETURN_IF_ERROR(library_->ToStatus(ort::kGetDimensions(api, info, dims.data(), rank)));
    PF_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(static_cast<DataType>(type), dims));
    void* data = nullptr;
    PF_RETURN_IF_ERROR(library_->ToStatus(ort::kGetTensorMutableData(api, value, &data)));
    if (tensor.byte_size() > 0) std::memcpy(tensor.mutable_data(), data, tensor.byte_size());
    return tensor;
  };
  absl::StatusOr<Tensor> tensor = read();
  ort::kReleaseTensorTypeAndShapeInfo(api, info);
  return tensor;
}

absl::StatusOr<std::vector<Tensor>> OrtSession::Run(const std::map<std::string, Tensor>& feeds,
                                                    const std::vector<std::string>& outputs,
                                                    const std::map<std::string, Tensor>& bound) {
  Values values{library_->api()};
  std::vector<const char*> input_names, output_names;
  std::vector<const ort::Value*> inputs;
  for (const auto& [name, tensor] : feeds) {
    PF_ASSIGN_OR_RETURN(const ort::Value* value, Wrap(name, tensor, values));
    input_names.push_back(name.c_str());
    inputs.push_back(value);
  }
  std::vector<ort::Value*> results(outputs.size(), nullptr);
  std::vector<Tensor> tensors(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    output_names.push_back(outputs[i].c_str());
    const auto preset = bound.find(outputs[i]);
    if (preset == bound.end()) continue;
    tensors[i] = preset->second;
    PF_ASSIGN_OR_RETURN(results[i], Wrap(outputs[i], preset->second, values));
  }
  const std::vector<ort::Value*> preset = results;
  const absl::Status status = library_->ToStatus(
      ort::kRun(library_->api(), session_, nullptr, input_names.data(), inputs.data(),
                inputs.size(), output_names.data(), output_names.size(), results.data()));
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i] != nullptr && preset[i] == nullptr) values.owned.push_back(results[i]);
  }
  PF_RETURN_IF_ERROR(status);
  for (size_t i = 0; i < results.size(); ++i) {
    if (preset[i] != nullptr) continue;
    PF_ASSIGN_OR_RETURN(tensors[i], CopyOut(results[i]));
  }
  return tensors;
}

}  // namespace pagefuse::tools
