// SPDX-License-Identifier: Apache-2.0
// How far a text has been read under a grammar.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "pagefuse/text/grammar/grammar.h"

namespace pagefuse {

// A value: copies are independent of each other, and cheap.
class GrammarState {
 public:
  explicit GrammarState(Grammar::Ptr grammar);
  GrammarState(const GrammarState& other);
  GrammarState(GrammarState&& other) noexcept;
  GrammarState& operator=(const GrammarState& other);
  GrammarState& operator=(GrammarState&& other) noexcept;
  ~GrammarState();

  // False if no text of the grammar goes on like this: the state stays as it was.
  bool Advance(uint8_t byte);
  // The same for all bytes, or none of them.
  bool Advance(std::string_view bytes);
  // What has been read is a text of the grammar.
  bool accepts() const;
  // It is one, and nothing can follow.
  bool finished() const;
  // The bytes that may come next, for messages: `'a'-'z', '"', 0x80-0xBF`.
  std::string NextBytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pagefuse
