// SPDX-License-Identifier: Apache-2.0
// What a shared object says without running any of its code.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"

namespace pagefuse {

bool IsElf(std::string_view bytes);

// A shared object for this machine. Refers to the bytes of the file.
class ElfFile {
 public:
  // InvalidArgument for a file that is cut short, no shared object, or for another machine.
  static absl::StatusOr<ElfFile> Open(std::string_view bytes);

  // True if others can link to the symbol.
  bool Defines(std::string_view symbol) const { return Find(symbol).has_value(); }
  // The first `size` bytes of a symbol's data as they lie in the file, before any address in them is
  // set; nullopt if there is none, or it has none in the file.
  std::optional<std::string_view> Data(std::string_view symbol, size_t size) const;

 private:
  explicit ElfFile(std::string_view bytes) : bytes_(bytes) {}
  std::optional<uint64_t> Find(std::string_view symbol) const;  // its address

  std::string_view bytes_;
};

}  // namespace pagefuse
