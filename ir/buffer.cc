#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>

#include <fcntl.h>
#include <unistd.h>

#include <sys/mman.h>
#include <sys/stat.h>

#include "pagefuse/ir/resident_pages.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/ir/tensor.h"

namespace pagefuse {
namespace {

constexpr size_t kAlignment = 64;
// From here on memory comes from mmap: zero pages cost nothing until they are written.
constexpr size_t kMapThreshold = size_t{1} << 20;
// From here on in huge pages where the system has them: blocks of a cache are read in any order,
// and with pages of 4 KiB looking up their addresses takes longer than reading them.
constexpr size_t kHugePageThreshold = size_t{8} << 20;

class HeapBuffer : public Buffer {
 public:
  HeapBuffer(std::byte* data, size_t size) : Buffer(data, size, /*writable=*/true) {}
  ~HeapBuffer() override { std::free(data()); }
};

class MappedBuffer : public Buffer {
 public:
  MappedBuffer(std::byte* data, size_t size, bool writable) : Buffer(data, size, writable) {}
  ~MappedBuffer() override {
    if (size() > 0) munmap(data(), size());
  }
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
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

absl::Status OutOfMemory(size_t bytes) {
  return absl::ResourceExhaustedError(StrCat("no memory for ", bytes, " bytes"));
}

}  // namespace

absl::StatusOr<std::shared_ptr<Buffer>> Buffer::Allocate(size_t bytes) {
  if (bytes > static_cast<size_t>(std::numeric_limits<int64_t>::max()) - kAlignment) {
    return OutOfMemory(bytes);
  }
  if (bytes >= kMapThreshold) {
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return OutOfMemory(bytes);
#if defined(MADV_HUGEPAGE)
    // Failure costs time, nothing else.
    if (bytes >= kHugePageThreshold) (void)madvise(data, bytes, MADV_HUGEPAGE);
#endif
    return std::make_shared<MappedBuffer>(static_cast<std::byte*>(data), bytes, /*writable=*/true);
  }
  const size_t rounded = (bytes / kAlignment + 1) * kAlignment;
  void* data = std::aligned_alloc(kAlignment, rounded);
  if (data == nullptr) return OutOfMemory(bytes);
  std::memset(data, 0, rounded);
  return std::make_shared<HeapBuffer>(static_cast<std::byte*>(data), bytes);
}

std::shared_ptr<Buffer> Buffer::Borrow(void* data, size_t bytes) {
  return std::make_shared<BorrowedBuffer>(static_cast<std::byte*>(data), bytes, /*writable=*/true);
}

std::shared_ptr<Buffer> Buffer::BorrowConst(const void* data, size_t bytes) {
  auto* start = static_cast<std::byte*>(const_cast<void*>(data));
  return std::make_shared<BorrowedBuffer>(start, bytes, /*writable=*/false);
}

absl::StatusOr<std::shared_ptr<Buffer>> Buffer::MapFile(const std::string& path) {
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
  const auto size = static_cast<size_t>(status.st_size);
  if (size == 0) return std::make_shared<MappedBuffer>(nullptr, 0, /*writable=*/false);
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) {
    return absl::InvalidArgumentError(StrCat("cannot map \"", path, "\": ", std::strerror(errno)));
  }
  return std::make_shared<MappedBuffer>(static_cast<std::byte*>(data), size, /*writable=*/false);
}

void ReleasePages(const Buffer& buffer, const void* data, size_t bytes) {
  // Read-only mappings are files; dropping pages of anonymous memory would zero them.
  if (buffer.writable() || dynamic_cast<const MappedBuffer*>(&buffer) == nullptr) return;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<uintptr_t>(data) + page - 1) / page * page;
  const auto end = (reinterpret_cast<uintptr_t>(data) + bytes) / page * page;
  if (begin >= end) return;
  // Failure costs memory, nothing else.
  (void)madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace pagefuse
