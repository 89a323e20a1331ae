// The text of IndexerKGather's decomposition.
#pragma once

#include <cstdint>
#include <string>

#include "pagefuse/ops/kernels/formats/grouped_row.h"

namespace pagefuse::pagefuse_ops {

// What the nodes depend on. Requests and columns of the block table are read from its shape.
struct IndexerKGatherBody {
  GroupedRowFormat format;
  int64_t block_size = 0;
  bool has_num_rows = false;
  bool uint8_codes = false;

  std::string Text() const;
};

}  // namespace pagefuse::pagefuse_ops
