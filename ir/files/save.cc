#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include <sys/stat.h>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/export_graph.h"
#include "pagefuse/ir/onnx/onnx_io.h"

namespace pagefuse {
namespace {

// Devices and pipes are written where they are: a file that took their place would end them.
bool IsSpecial(const std::string& path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
}

// A file that is written beside its place and moved there by Commit; gone if it is not committed.
class NewFile {
 public:
  explicit NewFile(std::string path) : path_(std::move(path)) {}
  ~NewFile() {
    if (fd_ >= 0) close(fd_);
    if (created_) unlink(temporary_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  absl::Status Open() {
    if (IsSpecial(path_)) {
      fd_ = open(path_.c_str(), O_WRONLY | O_CLOEXEC);
      return fd_ < 0 ? Failure("open") : absl::OkStatus();
    }
    // Left-overs of programs that were killed may have the first names.
    for (int attempt = 0; attempt < 100 && fd_ < 0; ++attempt) {
      temporary_ = StrCat(path_, ".tmp", getpid(), "-", attempt);
      fd_ = open(temporary_.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
      if (fd_ < 0 && errno != EEXIST) break;
    }
    if (fd_ < 0) return Failure("create");
    created_ = true;
    return absl::OkStatus();
  }

  absl::Status Write(const void* data, size_t size) {
    const char* next = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t written = write(fd_, next, size);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return Failure("write");
      next += written;
      size -= written;
    }
    return absl::OkStatus();
  }

  // Moves on to `offset`; what lies between is zero.
  absl::Status SeekTo(int64_t offset) {
    return lseek(fd_, offset, SEEK_SET) == offset ? absl::OkStatus() : Failure("write");
  }

  // Writes to the disk, so that Commit cannot leave half a file.
  absl::Status Finish() {
    if (created_ && fsync(fd_) != 0) return Failure("write");
    const int fd = std::exchange(fd_, -1);
    return close(fd) == 0 ? absl::OkStatus() : Failure("write");
  }

  absl::Status Commit() {
    if (!created_) return absl::OkStatus();
    if (std::rename(temporary_.c_str(), path_.c_str()) != 0) return Failure("write");
    created_ = false;
    return absl::OkStatus();
  }

 private:
  absl::Status Failure(std::string_view what) const {
    return absl::InvalidArgumentError(
        StrCat("cannot ", what, " \"", path_, "\": ", std::strerror(errno)));
  }

  std::string path_;
  std::string temporary_;
  int fd_ = -1;
  bool created_ = false;
};

absl::Status WriteData(const ExportContext& context, NewFile& file) {
  PF_RETURN_IF_ERROR(file.Open());
  for (const ExportContext::Piece& piece : context.pieces) {
    PF_RETURN_IF_ERROR(file.SeekTo(piece.offset));
    PF_RETURN_IF_ERROR(file.Write(piece.tensor.data(), piece.tensor.byte_size()));
  }
  return file.Finish();
}

absl::Status WriteBytes(const std::string& bytes, NewFile& file) {
  PF_RETURN_IF_ERROR(file.Open());
  PF_RETURN_IF_ERROR(file.Write(bytes.data(), bytes.size()));
  return file.Finish();
}

}  // namespace

absl::Status SaveModel(const Model& model, const std::string& path, const ExportOptions& options) {
  const std::string data_path = path + ".data";
  ExportContext context;
  context.location = std::filesystem::path(data_path).filename().string();
  // Nothing lies beside a device or a pipe.
  if (IsSpecial(path)) context.location.clear();
  context.threshold = options.external_data_threshold;
  onnx::ModelProto proto;
  PF_RETURN_IF_ERROR(ExportModel(model, context, &proto));
  NewFile data_file(data_path);
  NewFile model_file(path);
  if (!context.pieces.empty()) PF_RETURN_IF_ERROR(WriteData(context, data_file));
  PF_RETURN_IF_ERROR(WriteBytes(proto.SerializePartialAsString(), model_file));
  if (!context.pieces.empty()) PF_RETURN_IF_ERROR(data_file.Commit());
  return model_file.Commit();
}

absl::Status SaveTensor(const Tensor& tensor, std::string_view name, const std::string& path) {
  if (!tensor.defined()) return absl::InvalidArgumentError("expected a tensor, got none");
  ExportContext context;
  onnx::TensorProto proto;
  proto.set_name(std::string(name));
  PF_RETURN_IF_ERROR(ExportTensor(tensor, "", false, context, &proto));
  NewFile file(path);
  PF_RETURN_IF_ERROR(WriteBytes(proto.SerializePartialAsString(), file));
  return file.Commit();
}

}  // namespace pagefuse
