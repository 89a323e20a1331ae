// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/schema/kernel.h"

#include <algorithm>

#include "pagefuse/base/str_cat.h"

namespace pagefuse {

std::string_view DeviceName(Device device) { return device == Device::kCpu ? "cpu" : "cuda"; }

std::string Kernel::Description() const {
  if (device == Device::kCpu || name == DeviceName(device)) return name;
  return StrCat(name, " on ", DeviceName(device));
}

int64_t TensorArg::size() const {
  int64_t count = 1;
  for (int64_t dim : dims) count *= dim;
  return count;
}

int64_t TensorArg::block_bytes() const {
  if (block_stride > 0) return block_stride;
  int64_t elements = 1;
  for (size_t axis = 1; axis < dims.size(); ++axis) elements *= dims[axis];
  return elements * BitWidth(dtype) / 8;
}

TokenRows TokenRows::Of(const int32_t* query_start_loc, int64_t sequences) {
  TokenRows rows;
  if (query_start_loc[0] != 0) return rows;
  if (!std::is_sorted(query_start_loc, query_start_loc + sequences + 1)) return rows;
  for (int64_t b = 0; b < sequences; ++b) {
    const int64_t begin = query_start_loc[b], end = query_start_loc[b + 1];
    if (begin >= end) continue;
    const bool read = end - begin > 1;
    if (!rows.runs.empty() && rows.runs.back().read == read) {
      rows.runs.back().end = end;
    } else {
      rows.runs.push_back({begin, end, read});
    }
  }
  return rows;
}

const TensorArg& KernelArgs::input(int i) const {
  static const TensorArg kAbsent;
  return i < static_cast<int>(inputs.size()) ? inputs[i] : kAbsent;
}

const TensorArg& KernelArgs::host_input(int i) const {
  static const TensorArg kAbsent;
  if (device == nullptr) return input(i);
  return i < static_cast<int>(on_host.size()) ? on_host[i] : kAbsent;
}

const TensorArg& KernelArgs::output(int i) const {
  static const TensorArg kAbsent;
  return i < static_cast<int>(outputs.size()) ? outputs[i] : kAbsent;
}

}  // namespace pagefuse
