// SPDX-License-Identifier: Apache-2.0
// Numbers of an op's ports by their names, for kernels of ops whose tables of ports are their own.
#pragma once

#include <string_view>
#include <vector>

#include "pagefuse/ops/registry/registry.h"
#include "pagefuse/ops/schema/port.h"

namespace pagefuse::cuda {

// -1 if no port has the name.
inline int PortNumber(const std::vector<Port>& ports, std::string_view name) {
  for (size_t i = 0; i < ports.size(); ++i) {
    if (ports[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace pagefuse::cuda
