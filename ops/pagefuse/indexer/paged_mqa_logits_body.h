// SPDX-License-Identifier: Apache-2.0
// The text of PagedMqaLogits' decomposition.
#pragma once

#include <cstdint>
#include <string>

#include "pagefuse/base/data_type.h"

namespace pagefuse::pagefuse_ops {

// What decides the nodes.
struct PagedMqaLogitsBody {
  DataType query_type = DataType::kFloat8E4M3FN;  // kUint8: codes under another type
  DataType key_type = DataType::kUint8;           // kUint8: codes and scales; else numbers
  bool packed_keys = false;                       // of e2m1, two a byte, a scale for 32
  bool has_length = false;                        // max_model_len is given
  bool packed = false;                            // query_start_loc is given
  int64_t ratio = 1;

  std::string Text() const;
  // Of the text: the inputs by name, and the nodes, the last of which gives `logits`.
  std::string Inputs() const;
  std::string Lines() const;
};

}  // namespace pagefuse::pagefuse_ops
