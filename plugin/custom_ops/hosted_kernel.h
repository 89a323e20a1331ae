// SPDX-License-Identifier: Apache-2.0
// Runs a row of a custom op as a kernel.
#pragma once

#include <memory>
#include <string>

#include "pagefuse/ops/schema/kernel.h"
#include "pagefuse/plugin/custom_ops/row.h"

namespace pagefuse::ort {

// `library`: what errors call it; `name`: of the kernel.
Kernel HostedRow(std::shared_ptr<const Row> row, const std::string& library,
                 const std::string& name);

}  // namespace pagefuse::ort
