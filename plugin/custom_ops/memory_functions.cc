// SPDX-License-Identifier: Apache-2.0
// Descriptions of memory, and the allocator of the processor's.
#include <cstdlib>
#include <string>

#include "pagefuse/plugin/custom_ops/answers.h"
#include "pagefuse/plugin/custom_ops/table.h"

namespace pagefuse::ort {
namespace {

// Of OrtMemoryInfoDeviceType.
constexpr int kCpuDevice = 0;
// As ONNX Runtime's allocators align; SIMD code of libraries counts on it.
constexpr size_t kAlignment = 64;
constexpr uint32_t kAllocatorVersion = 18;

// NOLINTNEXTLINE(readability-function-size): as the C API has it.
Status* Create(const char* name, int allocator, int id, int memory, MemoryInfo** info) {
  if (CpuMemory().name != name) {
    return Refuse(
        ErrorCode::kNotImplemented,
        std::string("memory \"") + name + "\" is not there, expected \"" + CpuMemory().name + "\"");
  }
  *info = new MemoryInfo{name, allocator, id, memory};
  return nullptr;
}

Status* CreateCpu(int allocator, int memory, MemoryInfo** info) {
  *info = new MemoryInfo{CpuMemory().name, allocator, 0, memory};
  return nullptr;
}

Status* Compare(const MemoryInfo* a, const MemoryInfo* b, int* different) {
  const bool same = a->name == b->name && a->allocator == b->allocator && a->id == b->id &&
                    a->memory == b->memory;
  *different = same ? 0 : -1;
  return nullptr;
}

Status* NameOf(const MemoryInfo* info, const char** name) {
  *name = info->name.c_str();
  return nullptr;
}

void DeviceOf(const MemoryInfo* /*info*/, int* device) { *device = kCpuDevice; }

void* Take(Allocator* /*allocator*/, size_t size) {
  if (size == 0) return nullptr;
  return std::aligned_alloc(kAlignment, (size + kAlignment - 1) / kAlignment * kAlignment);
}

void GiveBack(Allocator* /*allocator*/, void* memory) { std::free(memory); }

const MemoryInfo* InfoOf(const Allocator* /*allocator*/) { return &CpuMemory(); }

Status* Alloc(Allocator* allocator, size_t size, void** memory) {
  *memory = allocator->alloc(allocator, size);
  if (*memory != nullptr || size == 0) return nullptr;
  return Refuse(ErrorCode::kFail, "there is no memory of " + std::to_string(size) + " bytes");
}

Status* Free(Allocator* allocator, void* memory) {
  allocator->free(allocator, memory);
  return nullptr;
}

Status* GetInfo(const Allocator* allocator, const MemoryInfo** info) {
  *info = allocator->info(allocator);
  return nullptr;
}

Status* GetDefault(Allocator** allocator) {
  *allocator = &CpuAllocator();
  return nullptr;
}

// There is one for all.
void ReleaseAllocator(Allocator* /*allocator*/) {}

}  // namespace

const MemoryInfo& CpuMemory() {
  static const auto* const memory = new MemoryInfo{"Cpu"};
  return *memory;
}

Allocator& CpuAllocator() {
  static Allocator allocator = {kAllocatorVersion, Take, GiveBack, InfoOf, Take};
  return allocator;
}

void FillMemory(const TableFiller& table) {
  table.Set(kCreateMemoryInfo, Create);
  table.Set(kCreateCpuMemoryInfo, CreateCpu);
  table.Set(kCompareMemoryInfo, Compare);
  table.Set(kMemoryInfoGetName, NameOf);
  table.Set(kMemoryInfoGetId, GetField<MemoryInfo, int, &MemoryInfo::id>);
  table.Set(kMemoryInfoGetMemType, GetField<MemoryInfo, int, &MemoryInfo::memory>);
  table.Set(kMemoryInfoGetType, GetField<MemoryInfo, int, &MemoryInfo::allocator>);
  table.Set(kMemoryInfoGetDeviceType, DeviceOf);
  table.Set(kReleaseMemoryInfo, Release<MemoryInfo>);
  table.Set(kAllocatorAlloc, Alloc);
  table.Set(kAllocatorFree, Free);
  table.Set(kAllocatorGetInfo, GetInfo);
  table.Set(kGetAllocatorWithDefaultOptions, GetDefault);
  table.Set(kReleaseAllocator, ReleaseAllocator);
}

}  // namespace pagefuse::ort
