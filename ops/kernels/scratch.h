// Memory that the calls of a kernel use again.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace pagefuse {

// Reusable memory that lives for one kernel call; grows to the largest request and is kept by the
// executor.
class Scratch {
 public:
  // `bytes` of memory aligned to 64, contents unspecified; valid until the next call of Get with
  // the same `slot`.
  void* Get(size_t bytes, int slot = 0);

 private:
  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  std::vector<size_t> sizes_;
};

}  // namespace pagefuse
