// Sizes of what nodes make.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ir/graph.h"

namespace pagefuse {

// ByteSize of output `output`; its InvalidArgument names the node.
absl::StatusOr<int64_t> OutputBytes(const Node& node, int output, DataType dtype,
                                    const std::vector<int64_t>& dims);

}  // namespace pagefuse
