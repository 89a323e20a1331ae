#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
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

constexpr size_t kAlignment = 64;
// From here on memory comes from mmap: zero pages cost nothing until they are written.
constexpr size_t kMapThreshold = size_t{1} << 20;
// From here on in huge pages where the system has them: blocks of a cache are read in any order, and
// weights once a token; with pages of 4 KiB looking up their addresses takes longer than reading them.
constexpr size_t kHugePage = size_t{2} << 20;

class HeapBuffer : public Buffer {
 public:
  HeapBuffer(std::byte* data, size_t size, MemoryShare share)
      : Buffer(data, size, /*writable=*/true), share_(std::move(share)) {}
  ~HeapBuffer() override { std::free(data()); }

 private:
  MemoryShare share_;
};

// Anonymous memory.
class PageBuffer : public Buffer {
 public:
  PageBuffer(std::byte* data, size_t size, MemoryShare share)
      : Buffer(data, size, /*writable=*/true), share_(std::move(share)) {}
  ~PageBuffer() override { munmap(data(), size()); }

 private:
  MemoryShare share_;
};

class BorrowedBuffer : public Buffer {
 public:
  BorrowedBuffer(std::byte* data, size_t size, bool writable) : Buffer(data, size, writable) {}
};

// Zero pages from mmap, whole huge pages where there is room for one; null without memory.
void* MapPages(size_t bytes) {
  const auto map = [](size_t size) {
    return mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  };
  if (bytes < kHugePage) {
    void* data = map(bytes);
    return data == MAP_FAILED ? nullptr : data;
  }
  // More than is asked for, of which the first and last part go back: then it starts at a huge page.
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t whole = (bytes + page - 1) / page * page;
  void* mapped = map(whole + kHugePage);
  if (mapped == MAP_FAILED) return nullptr;
  auto* first = static_cast<std::byte*>(mapped);
  const size_t skipped = (kHugePage - reinterpret_cast<uintptr_t>(first) % kHugePage) % kHugePage;
  if (skipped > 0) munmap(first, skipped);
  if (skipped < kHugePage) munmap(first + skipped + whole, kHugePage - skipped);
#if defined(MADV_HUGEPAGE)
  // The last, partial one would make bytes resident that hold nothing. Failure costs time, nothing else.
  (void)madvise(first + skipped, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
#endif
  return first + skipped;
}

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

absl::Status OutOfMemory(size_t bytes) {
  return absl::ResourceExhaustedError(StrCat("no memory for ", bytes, " bytes"));
}

}  // namespace

absl::StatusOr<std::shared_ptr<Buffer>> Buffer::Allocate(size_t bytes) {
  if (bytes > static_cast<size_t>(std::numeric_limits<int64_t>::max()) - kAlignment) {
    return OutOfMemory(bytes);
  }
  MemoryShare share;
  PF_RETURN_IF_ERROR(share.Take(static_cast<int64_t>(bytes)));
  if (bytes >= kMapThreshold) {
    void* data = MapPages(bytes);
    if (data == nullptr) return OutOfMemory(bytes);
    return std::make_shared<PageBuffer>(static_cast<std::byte*>(data), bytes, std::move(share));
  }
  const size_t rounded = (bytes / kAlignment + 1) * kAlignment;
  void* data = std::aligned_alloc(kAlignment, rounded);
  if (data == nullptr) return OutOfMemory(bytes);
  std::memset(data, 0, rounded);
  return std::make_shared<HeapBuffer>(static_cast<std::byte*>(data), bytes, std::move(share));
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
