// The text of PagedMqaLogits' decomposition.
#pragma once

#include <string>

namespace pagefuse::pagefuse_ops {

// What decides the nodes.
struct PagedMqaLogitsBody {
  bool uint8_q = false;     // codes under another type
  bool has_length = false;  // max_model_len is given

  std::string Name() const;
  std::string Text() const;
};

}  // namespace pagefuse::pagefuse_ops
