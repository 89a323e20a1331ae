// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ir/onnx/external_data.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/numbers.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/contained_path.h"
#include "pagefuse/ir/onnx/foreign_file.h"
#include "pagefuse/ir/onnx/onnx_proto.h"
#include "pagefuse/ir/tensor/absent_tensor.h"

namespace pagefuse {
namespace {

namespace fs = std::filesystem;

struct Entry {
  std::string location;
  int64_t offset = 0;
  std::optional<int64_t> length;
};

absl::StatusOr<int64_t> ParseSize(std::string_view key, const std::string& text) {
  int64_t value;
  // SimpleAtoi would take blanks and signs.
  const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  if (digits && absl::SimpleAtoi(text, &value)) return value;
  return absl::InvalidArgumentError(
      StrCat("external data: ", key, ": expected a number of bytes, got \"", text, "\""));
}

absl::StatusOr<Entry> ParseEntry(const onnx::TensorProto& proto) {
  Entry entry;
  for (const onnx::StringStringEntryProto& pair : proto.external_data()) {
    if (pair.key() == "location") {
      entry.location = pair.value();
    } else if (pair.key() == "offset") {
      PF_ASSIGN_OR_RETURN(entry.offset, ParseSize("offset", pair.value()));
    } else if (pair.key() == "length") {
      PF_ASSIGN_OR_RETURN(entry.length, ParseSize("length", pair.value()));
    }
  }
  return entry;
}

}  // namespace

absl::StatusOr<std::shared_ptr<Buffer>> ExternalData::Open(const std::string& location) {
  if (const auto known = opened_.find(location); known != opened_.end()) return known->second;
  const absl::StatusOr<fs::path> path = ContainedPath(options_.base_dir, location);
  PF_RETURN_IF_ERROR(AtPlace("external data", path.status()));
  std::shared_ptr<Buffer>& file = files_[path->string()];
  if (file == nullptr) {
    absl::StatusOr<std::shared_ptr<Buffer>> opened =
        options_.map_files ? Buffer::MapFile(path->string()) : Buffer::ReadFile(path->string());
    PF_RETURN_IF_ERROR(AtPlace("external data", opened.status()));
    const std::string_view bytes(reinterpret_cast<const char*>((*opened)->data()),
                                 (*opened)->size());
    PF_RETURN_IF_ERROR(
        AtPlace(StrCat("external data: \"", location, "\""), CheckIsNoPointer(bytes)));
    file = *std::move(opened);
  }
  opened_[location] = file;
  return file;
}

absl::StatusOr<Tensor> ExternalData::Load(const onnx::TensorProto& proto, DataType type,
                                          std::vector<int64_t> dims) {
  if (options_.base_dir.empty()) {
    return absl::InvalidArgumentError("external data: there is no folder to look for it");
  }
  if (type == DataType::kString) {
    return absl::InvalidArgumentError("external data: expected no strings, got a string tensor");
  }
  PF_ASSIGN_OR_RETURN(const Entry entry, ParseEntry(proto));
  PF_ASSIGN_OR_RETURN(const int64_t bytes, ByteSize(type, dims));
  const auto opened = Open(entry.location);
  if (options_.allow_missing && absl::IsNotFound(opened.status())) {
    return AbsentTensor(type, std::move(dims));
  }
  PF_RETURN_IF_ERROR(opened.status());
  const std::shared_ptr<Buffer>& file = *opened;
  if (entry.length && *entry.length != bytes) {
    return absl::InvalidArgumentError(StrCat("external data: length: expected ", bytes,
                                             " bytes for ", DataTypeName(type), DimsToString(dims),
                                             ", got ", *entry.length));
  }
  const auto available = static_cast<int64_t>(file->size());
  if (entry.offset > available || bytes > available - entry.offset) {
    return absl::InvalidArgumentError(StrCat("external data: expected ", bytes, " bytes at offset ",
                                             entry.offset, " of \"", entry.location,
                                             "\", got a file of ", available, " bytes"));
  }
  PF_ASSIGN_OR_RETURN(Tensor tensor, Tensor::View(type, std::move(dims), file, entry.offset));
  // Complex numbers are pairs of half their size.
  const int64_t alignment = std::min<int64_t>(8, std::max(1, BitWidth(type) / 8));
  return entry.offset % alignment == 0 ? absl::StatusOr<Tensor>(std::move(tensor)) : tensor.Clone();
}

}  // namespace pagefuse
