// SPDX-License-Identifier: Apache-2.0
// Tensors: dtype, dims, and a shared buffer that is owned, borrowed, or part of a mapped file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/base/allocator.h"
#include "pagefuse/base/data_type.h"
#include "pagefuse/ir/tensor/shape.h"

namespace pagefuse {

// Bytes with an owner. Immutable length; thread-safe to share, writers must synchronise.
class Buffer {
 public:
  virtual ~Buffer() = default;
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  bool writable() const { return writable_; }
  // False of a device's memory, which only its context reads and writes (base/device.h).
  virtual bool on_host() const { return true; }
  // FailedPrecondition if the buffer maps a file that has become shorter since: reading what is
  // gone ends the program (SIGBUS).
  virtual absl::Status CheckIntact() const { return absl::OkStatus(); }

  // Zero-filled memory aligned to 64 bytes. ResourceExhausted if there is none, or none is left of
  // the thread's budget (memory_budget.h).
  static absl::StatusOr<std::shared_ptr<Buffer>> Allocate(size_t bytes,
                                                          Allocator& allocator = HostAllocator());
  // Memory of the caller's, which must outlive every tensor on it.
  static std::shared_ptr<Buffer> Borrow(void* data, size_t bytes);
  static std::shared_ptr<Buffer> BorrowConst(const void* data, size_t bytes);
  // A read-only mapping of a whole file, which must not become shorter while it is read: see
  // CheckIntact. NotFound or InvalidArgument with the path on failure.
  static absl::StatusOr<std::shared_ptr<Buffer>> MapFile(const std::string& path);
  // The bytes of a whole file, in memory of their own. Errors as MapFile.
  static absl::StatusOr<std::shared_ptr<Buffer>> ReadFile(const std::string& path);

 protected:
  Buffer(std::byte* data, size_t size, bool writable)
      : data_(data), size_(size), writable_(writable) {}

 private:
  std::byte* data_;
  size_t size_;
  bool writable_;
};

// Bytes that `dims` elements of `type` take (packed types: two a byte, rounded up). InvalidArgument
// if a dim is negative or the size does not fit; strings have no byte size and give 0.
absl::StatusOr<int64_t> ByteSize(DataType type, const std::vector<int64_t>& dims);

// A dense row-major tensor, or, of a cache, one of blocks. Copying one shares its buffer.
class Tensor {
 public:
  Tensor();
  Tensor(const Tensor&);
  Tensor(Tensor&&) noexcept;
  Tensor& operator=(const Tensor&);
  Tensor& operator=(Tensor&&) noexcept;
  ~Tensor();
  // Zero-filled, owned.
  static absl::StatusOr<Tensor> Allocate(DataType type, std::vector<int64_t> dims,
                                         Allocator& allocator = HostAllocator());
  // A tensor over bytes [offset, offset + ByteSize) of `buffer`. InvalidArgument if they do not lie
  // inside.
  static absl::StatusOr<Tensor> View(DataType type, std::vector<int64_t> dims,
                                     std::shared_ptr<Buffer> buffer, size_t offset = 0);
  // A tensor whose elements of the first dim, the blocks, are dense and begin `stride` bytes apart, the
  // first one at `offset`. It is made for what takes blocks (PortSpec::InBlocks): of others data() is
  // the first block, values() is not to be called, and Clone is dense. InvalidArgument if a block is
  // longer than the stride, or they do not lie inside.
  static absl::StatusOr<Tensor> Blocks(DataType type, std::vector<int64_t> dims,
                                       std::shared_ptr<Buffer> buffer, size_t offset,
                                       int64_t stride);
  // Owned copies of values; the element type must be the C++ type of `type` (see `CppType` users:
  // float, int64_t, ...).
  template <typename T>
  static Tensor Of(std::vector<int64_t> dims, const std::vector<T>& values);
  template <typename T>
  static Tensor Scalar(T value) {
    return Of<T>({}, {value});
  }
  static Tensor Strings(std::vector<int64_t> dims, std::vector<std::string> values);

  bool defined() const { return dtype_ != DataType::kUndefined; }
  DataType dtype() const { return dtype_; }
  const std::vector<int64_t>& dims() const { return dims_; }
  int rank() const { return static_cast<int>(dims_.size()); }
  int64_t size() const { return size_; }            // elements
  int64_t byte_size() const { return byte_size_; }  // 0 for strings
  const void* data() const { return buffer_ ? buffer_->data() + offset_ : nullptr; }
  // Null unless the buffer is writable. Writes are seen by all tensors that share it.
  void* mutable_data() {
    return buffer_ && buffer_->writable() ? buffer_->data() + offset_ : nullptr;
  }
  template <typename T>
  std::span<const T> values() const {
    return {static_cast<const T*>(data()), static_cast<size_t>(size_)};
  }
  template <typename T>
  std::span<T> mutable_values() {
    return {static_cast<T*>(mutable_data()), static_cast<size_t>(size_)};
  }
  const std::vector<std::string>& strings() const { return *strings_; }
  const std::shared_ptr<Buffer>& buffer() const { return buffer_; }
  size_t buffer_offset() const { return offset_; }
  // Bytes from a block to the next one; 0: dense.
  int64_t block_stride() const { return block_stride_; }

  // The same bytes under other dims with as many elements. InvalidArgument for one of blocks.
  absl::StatusOr<Tensor> Reshaped(std::vector<int64_t> dims) const;
  // An owned copy.
  absl::StatusOr<Tensor> Clone() const;
  // Same type, dims and bytes.
  bool IdenticalTo(const Tensor& other) const;

 private:
  DataType dtype_ = DataType::kUndefined;
  std::vector<int64_t> dims_;
  int64_t size_ = 0;
  int64_t byte_size_ = 0;
  size_t offset_ = 0;
  int64_t block_stride_ = 0;
  std::shared_ptr<Buffer> buffer_;
  std::shared_ptr<const std::vector<std::string>> strings_;
};

// The values of an integer tensor (any integer type or bool) as int64; InvalidArgument for other
// types.
absl::StatusOr<std::vector<int64_t>> IntegerValues(const Tensor& tensor);

}  // namespace pagefuse
