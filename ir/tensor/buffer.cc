// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include <sys/mman.h>
#include <sys/stat.h>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/tensor/memory_budget.h"
#include "pagefuse/ir/tensor/resident_pages.h"
#include "pagefuse/ir/tensor/tensor.h"

namespace pagefuse {
namespace {

class AllocatedBuffer : public Buffer {
 public:
  AllocatedBuffer(AllocatedMemory memory, size_t size, MemoryShare share)
      : Buffer(memory.get(), size, /*writable=*/true),
        share_(std::move(share)),
        memory_(std::move(memory)) {}

  bool on_host() const override { return memory_.get_deleter().allocator->is_host(); }

 private:
  MemoryShare share_;
  AllocatedMemory memory_;
};

class BorrowedBuffer : public Buffer {
 public:
  BorrowedBuffer(std::byte* data, size_t size, bool writable) : Buffer(data, size, writable) {}
};

// Closes a file descriptor at the end of a scope.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// A mapped file, kept open so that its length can be asked for.
class MappedBuffer : public Buffer {
 public:
  MappedBuffer(std::byte* data, size_t size, FileDescriptor file, std::string path)
      : Buffer(data, size, /*writable=*/false), file_(std::move(file)), path_(std::move(path)) {}
  ~MappedBuffer() override {
    if (size() > 0) munmap(data(), size());
  }

  absl::Status CheckIntact() const override {
    struct stat status;
    if (fstat(file_.get(), &status) == 0 && static_cast<size_t>(status.st_size) >= size()) {
      return absl::OkStatus();
    }
    return absl::FailedPreconditionError(StrCat(
        "\"", path_, "\" was ", size(), " bytes long when it was loaded and is shorter now"));
  }

 private:
  FileDescriptor file_;
  std::string path_;
};

absl::StatusOr<FileDescriptor> OpenFile(const std::string& path, size_t& size) {
  // Opening a FIFO would wait for a writer; O_NONBLOCK lets fstat refuse it.
  FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) {
    const std::string message = StrCat("cannot open \"", path, "\": ", std::strerror(errno));
    return errno == ENOENT ? absl::NotFoundError(message) : absl::InvalidArgumentError(message);
  }
  struct stat status;
  if (fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return absl::InvalidArgumentError(StrCat("\"", path, "\" is no regular file"));
  }
  size = static_cast<size_t>(status.st_size);
  return file;
}

absl::Status OutOfMemory(size_t bytes, const Allocator& allocator) {
  std::string message =
      StrCat("no ", allocator.is_host() ? "" : "device ", "memory for ", bytes, " bytes");
  if (const std::optional<MemoryRoom> room = allocator.Room()) {
    StrAppend(&message, ": ", room->free, " of ", room->total, " are free");
  }
  return absl::ResourceExhaustedError(message);
}

}  // namespace

absl::StatusOr<std::shared_ptr<Buffer>> Buffer::Allocate(size_t bytes, Allocator& allocator) {
  // Allocators round up, to 256 bytes at most.
  constexpr auto kMostBytes = static_cast<size_t>(std::numeric_limits<int64_t>::max()) - 256;
  if (bytes > kMostBytes) return OutOfMemory(bytes, allocator);
  MemoryShare share;
  // Budgets are of the host's memory.
  if (allocator.is_host()) PF_RETURN_IF_ERROR(share.Take(static_cast<int64_t>(bytes)));
  AllocatedMemory memory = AllocateFrom(allocator, bytes);
  if (memory == nullptr) return OutOfMemory(bytes, allocator);
  return std::make_shared<AllocatedBuffer>(std::move(memory), bytes, std::move(share));
}

std::shared_ptr<Buffer> Buffer::Borrow(void* data, size_t bytes) {
  return std::make_shared<BorrowedBuffer>(static_cast<std::byte*>(data), bytes, /*writable=*/true);
}

std::shared_ptr<Buffer> Buffer::BorrowConst(const void* data, size_t bytes) {
  auto* start = static_cast<std::byte*>(const_cast<void*>(data));
  return std::make_shared<BorrowedBuffer>(start, bytes, /*writable=*/false);
}

absl::StatusOr<std::shared_ptr<Buffer>> Buffer::MapFile(const std::string& path) {
  size_t size = 0;
  PF_ASSIGN_OR_RETURN(FileDescriptor file, OpenFile(path, size));
  void* data = nullptr;
  if (size > 0) data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) {
    return absl::InvalidArgumentError(StrCat("cannot map \"", path, "\": ", std::strerror(errno)));
  }
  return std::make_shared<MappedBuffer>(static_cast<std::byte*>(data), size, std::move(file), path);
}

absl::StatusOr<std::shared_ptr<Buffer>> Buffer::ReadFile(const std::string& path) {
  size_t size = 0;
  PF_ASSIGN_OR_RETURN(const FileDescriptor file, OpenFile(path, size));
  PF_ASSIGN_OR_RETURN(std::shared_ptr<Buffer> buffer, Allocate(size));
  for (size_t done = 0; done < size;) {
    const ssize_t count = read(file.get(), buffer->data() + done, size - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      return absl::InvalidArgumentError(
          StrCat("cannot read \"", path,
                 "\": ", count == 0 ? "it became shorter meanwhile" : std::strerror(errno)));
    }
    done += static_cast<size_t>(count);
  }
  return buffer;
}

bool IsMappedFile(const Buffer& buffer) {
  return dynamic_cast<const MappedBuffer*>(&buffer) != nullptr;
}

void ReleasePages(const Buffer& buffer, const void* data, size_t bytes) {
  // Dropping pages of anonymous memory would zero them.
  if (!IsMappedFile(buffer)) return;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<uintptr_t>(data) + page - 1) / page * page;
  const auto end = (reinterpret_cast<uintptr_t>(data) + bytes) / page * page;
  if (begin >= end) return;
  // Failure costs memory, nothing else.
  (void)madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace pagefuse
