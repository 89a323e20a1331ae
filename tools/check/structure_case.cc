// SPDX-License-Identifier: Apache-2.0
#include "tools/check/structure_case.h"

#include <filesystem>
#include <fstream>
#include <system_error>

#include "nlohmann/json.hpp"
#include "tools/cli/temporary_folder.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/ops/registry/registry.h"

namespace pagefuse {
namespace {

namespace fs = std::filesystem;

absl::StatusOr<int64_t> DataBytes(const fs::path& list) {
  std::ifstream file(list);
  const auto json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (json.is_object() && json.contains("data_bytes") && json["data_bytes"].is_number_integer()) {
    return json["data_bytes"].get<int64_t>();
  }
  return absl::InvalidArgumentError(StrCat("\"", list.string(), "\": expected data_bytes"));
}

// Loads `folder`/model.onnx. Weights that are not there, as `folder`/initializers.json lists them
// (`data_bytes`), are zeros that take no memory. NotFound or InvalidArgument naming the file.
absl::StatusOr<Model> LoadStructure(const std::string& folder) {
  const fs::path from(folder);
  const fs::path list = from / "initializers.json";
  std::error_code error;
  if (!fs::exists(list, error) || fs::exists(from / "model.onnx.data", error)) {
    return LoadModel((from / "model.onnx").string());
  }
  PF_ASSIGN_OR_RETURN(const int64_t bytes, DataBytes(list));
  const tools::TemporaryFolder copy;
  fs::copy_file(from / "model.onnx", copy.path() / "model.onnx", error);
  if (!error) std::ofstream(copy.path() / "model.onnx.data");
  // A hole: it reads as zeros.
  if (!error)
    fs::resize_file(copy.path() / "model.onnx.data", static_cast<uintmax_t>(bytes), error);
  if (error) return absl::InternalError(StrCat("no copy of \"", folder, "\": ", error.message()));
  return LoadModel((copy.path() / "model.onnx").string());
}

}  // namespace

absl::Status CheckStructure(const std::string& folder) {
  PF_ASSIGN_OR_RETURN(Model model, LoadStructure(folder));
  PF_RETURN_IF_ERROR(VerifyOps(model));
  PF_RETURN_IF_ERROR(InferShapes(model));
  for (const Value* value : model.graph->values()) {
    bool known = value->dtype() != DataType::kUndefined && value->shape().has_value();
    for (int i = 0; known && i < value->shape()->rank(); ++i) known = (*value->shape())[i].known();
    if (known) continue;
    return absl::InvalidArgumentError(
        StrCat("type or shape of \"", value->name(), "\" is not known"));
  }
  return absl::OkStatus();
}

}  // namespace pagefuse
