// SPDX-License-Identifier: Apache-2.0
// The table of functions that a library of custom ops calls. Functions that a kernel for the CPU
// may need are there; each other one answers "not implemented" with its place and name, which
// library_call.h remembers.
#pragma once

#include "plugin/ort/ort_abi.h"

namespace pagefuse::ort {

// Versions of the API whose functions are all in the table.
inline constexpr uint32_t kNewestVersion = 23;
inline constexpr int kPlaces = 400;

// What a library is registered with.
const ApiBase& HostApiBase();
// Name of the function at a place.
const char* FunctionName(int place);

// Fills places of the table.
class TableFiller {
 public:
  explicit TableFiller(const void** table) : table_(table) {}
  template <typename Result, typename... Args>
  void Set(const Function<Result(Args...)>& function, Result (*ours)(Args...)) const {
    table_[function.place] = reinterpret_cast<const void*>(ours);
  }

 private:
  const void** table_;
};

// The functions by what they are about, each in a file of its own.
void FillStatuses(const TableFiller& table);
void FillRegistration(const TableFiller& table);
void FillTypes(const TableFiller& table);
void FillValues(const TableFiller& table);
void FillMemory(const TableFiller& table);
void FillKernelInfo(const TableFiller& table);
void FillKernelContext(const TableFiller& table);
void FillShapeInference(const TableFiller& table);

}  // namespace pagefuse::ort
