#include "pagefuse/ir/external_data.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/numbers.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/absent_data.h"
#include "pagefuse/ir/onnx_proto.h"
#include "pagefuse/ir/str_cat.h"

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

absl::Status CheckLocation(const std::string& location) {
  auto refuse = [&location](std::string_view reason) {
    return absl::InvalidArgumentError(
        StrCat("external data: location \"", location, "\" ", reason));
  };
  if (location.empty()) return refuse("is empty");
  if (location.find('\0') != std::string::npos) return refuse("contains a zero byte");
  const fs::path path(location);
  if (path.is_absolute()) return refuse("is absolute");
  for (const fs::path& part : path) {
    if (part == "..") return refuse("leaves the folder of the model");
  }
  return absl::OkStatus();
}

bool IsInside(const fs::path& path, const fs::path& folder) {
  const auto [end, rest] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return end == folder.end();
}

// The repository of a download cache that a model's folder is part of:
// REPOSITORY/snapshots/REVISION holds links to REPOSITORY/blobs/HASH. Empty if the folder is in
// none.
fs::path RepositoryAround(const fs::path& folder) {
  std::error_code error;
  for (fs::path inner = folder; inner.has_relative_path(); inner = inner.parent_path()) {
    const fs::path snapshots = inner.parent_path();
    const fs::path repository = snapshots.parent_path();
    if (snapshots.filename() == "snapshots" && repository.has_relative_path() &&
        fs::is_directory(repository / "blobs", error)) {
      return repository;
    }
  }
  return {};
}

}  // namespace

absl::StatusOr<std::shared_ptr<Buffer>> ExternalData::Open(const std::string& location) {
  if (const auto known = opened_.find(location); known != opened_.end()) return known->second;
  PF_RETURN_IF_ERROR(CheckLocation(location));
  std::error_code error;
  const fs::path folder = fs::canonical(options_.base_dir, error);
  if (error) {
    return absl::NotFoundError(
        StrCat("external data: folder \"", options_.base_dir, "\": ", error.message()));
  }
  const fs::path path = fs::canonical(folder / location, error);
  if (error) {
    return absl::NotFoundError(StrCat("external data: \"", location, "\": ", error.message()));
  }
  const fs::path repository = RepositoryAround(folder);
  if (!IsInside(path, repository.empty() ? folder : repository)) {
    return absl::InvalidArgumentError(
        StrCat("external data: location \"", location, "\" is a link that leaves the ",
               repository.empty() ? "folder" : "repository", " of the model"));
  }
  std::shared_ptr<Buffer>& file = files_[path.string()];
  if (file == nullptr) {
    absl::StatusOr<std::shared_ptr<Buffer>> opened =
        options_.map_files ? Buffer::MapFile(path.string()) : Buffer::ReadFile(path.string());
    PF_RETURN_IF_ERROR(At("external data", opened.status()));
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
