// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "peer_model.h"
#include <nlohmann/json.hpp>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/onnx/onnx_io.h"

namespace pagefuse {
namespace {

absl::Status WriteFile(const std::string& path, const void* data, int64_t bytes) {
  std::ofstream file(path, std::ios::binary);
  if (bytes > 0) file.write(static_cast<const char*>(data), bytes);
  file.flush();
  if (!file) return absl::UnavailableError(absl::StrCat(path, ": cannot be written"));
  return absl::OkStatus();
}

// The binding's name of a type of a graph input.
std::string BindingType(DataType type) {
  return type == DataType::kFloat ? "float32" : std::string(DataTypeName(type));
}

}  // namespace

absl::Status SavePeer(const PeerModel& peer, const PeerCase& peer_case, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return absl::UnavailableError(absl::StrCat(folder, ": ", error.message()));
  PF_RETURN_IF_ERROR(SaveModel(peer.model, folder + "/model.onnx"));
  nlohmann::json inputs = nlohmann::json::array();
  for (const auto& [name, tensor] : peer.inputs) {
    const DataType type = peer.model.graph->FindValue(name)->dtype();
    const std::string file = absl::StrCat("input_", inputs.size(), ".bin");
    PF_RETURN_IF_ERROR(WriteFile(folder + "/" + file, tensor.data(), tensor.byte_size()));
    inputs.push_back(
        {{"name", name}, {"type", BindingType(type)}, {"dims", tensor.dims()}, {"file", file}});
  }
  // Outputs of a known size go to memory that is there before, as ours do.
  nlohmann::json outputs = nlohmann::json::array();
  for (const Value* output : peer.model.graph->outputs()) {
    const auto dims = output->shape() ? output->shape()->constant() : std::nullopt;
    if (!dims) continue;
    outputs.push_back(
        {{"name", output->name()}, {"type", BindingType(output->dtype())}, {"dims", *dims}});
  }
  nlohmann::json in_place = nlohmann::json::object();
  for (const auto& [output, input] : peer.in_place) in_place[output] = input;
  const nlohmann::json manifest = {
      {"name", peer_case.name},       {"size", peer_case.size}, {"kernel", peer_case.kernel},
      {"seconds", peer_case.seconds}, {"peer", peer.op},        {"inputs", inputs},
      {"in_place", in_place},         {"outputs", outputs},     {"aim", peer_case.aim}};
  const std::string text = manifest.dump(2) + "\n";
  return WriteFile(folder + "/manifest.json", text.data(), static_cast<int64_t>(text.size()));
}

}  // namespace pagefuse
