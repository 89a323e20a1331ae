// SPDX-License-Identifier: Apache-2.0
// The structures of DLPack's C ABI, major version 0: https://dmlc.github.io/dlpack, "DLPack C API".
#pragma once

#include <cstdint>

namespace pagefuse::python::dlpack {

inline constexpr int32_t kCpu = 1;
enum Code : uint8_t { kInt = 0, kUint = 1, kFloat = 2, kBfloat = 4, kComplex = 5, kBool = 6 };

struct Device {
  int32_t type;
  int32_t id;
};

struct Type {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};

struct View {
  void* data;
  Device device;
  int32_t rank;
  Type type;
  int64_t* dims;
  int64_t* strides;  // in elements; null: dense, row after row
  uint64_t byte_offset;
};

// The content of a capsule "dltensor": who takes it renames the capsule and calls `release` once.
struct Managed {
  View view;
  void* context;
  void (*release)(Managed* self);
};

}  // namespace pagefuse::python::dlpack
