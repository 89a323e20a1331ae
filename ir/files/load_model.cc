// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/status_place.h"
#include "pagefuse/ir/onnx/foreign_file.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ir/text/text.h"

namespace pagefuse {
namespace {

// How much of a file is looked at to tell text from protobuf.
constexpr size_t kProbeBytes = 1024;

// A ModelProto has control characters within its first fields: the tag of ir_version is one.
bool LooksLikeText(std::string_view bytes) {
  bytes = bytes.substr(0, kProbeBytes);
  return std::all_of(bytes.begin(), bytes.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte >= 0x20 && byte != 0x7f) || (byte >= '\t' && byte <= '\r');
  });
}

std::string_view Bytes(const Buffer& buffer) {
  return {reinterpret_cast<const char*>(buffer.data()), buffer.size()};
}

absl::StatusOr<Model> ReadBytes(std::string_view bytes, const std::string& path,
                                const LoadOptions& options) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  return ReadModelBytes(bytes, {.base_dir = folder.empty() ? "." : folder.string(),
                                .map_files = options.map_files,
                                .allow_missing_data = options.allow_missing_data});
}

}  // namespace

absl::StatusOr<Model> ReadModelBytes(std::string_view bytes, const ImportOptions& options) {
  if (bytes.empty()) return absl::InvalidArgumentError("the file is empty");
  PF_RETURN_IF_ERROR(CheckIsNoForeignFile(bytes));
  return LooksLikeText(bytes) ? ParseModel(bytes) : ImportModel(bytes, options);
}

absl::StatusOr<Model> LoadModel(const std::string& path, const LoadOptions& options) {
  PF_ASSIGN_OR_RETURN(const std::shared_ptr<Buffer> file,
                      options.map_files ? Buffer::MapFile(path) : Buffer::ReadFile(path));
  absl::StatusOr<Model> model = ReadBytes(Bytes(*file), path, options);
  PF_RETURN_IF_ERROR(InFile(path, model.status()));
  return model;
}

}  // namespace pagefuse
