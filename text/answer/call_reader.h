// SPDX-License-Identifier: Apache-2.0
// Reads one tool call of an answer, byte by byte. Each tool format has a reader.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace pagefuse {

// Whom a reader tells of the call that it reads.
class CallSink {
 public:
  virtual ~CallSink() = default;
  // The call's name, once, before its arguments. False if there is no such tool: then it is no call.
  virtual bool BeginCall(std::string_view name) = 0;
  // The next part of its arguments, as JSON text.
  virtual void AddArguments(std::string_view json) = 0;
};

class CallReader {
 public:
  enum class Read {
    kMore,
    kDone,    // the byte was the last of the call
    kBroken,  // it is no call, or none any further; unread() is not part of it
  };
  virtual ~CallReader() = default;
  virtual Read Add(char c, CallSink& sink) = 0;
  // The last bytes that were added, after kBroken.
  const std::string& unread() const { return unread_; }

 protected:
  Read Broken();
  // The same in front of the last byte.
  Read Broken(char last);
  // Reads one of several literals, white space before it apart. kDone at its end, *which being its number; kBroken at a byte that
  // none has, from which on nothing is read.
  Read ReadLiteral(std::span<const std::string_view> literals, char c, size_t* which);
  Read ReadLiteral(std::string_view literal, char c);
  // Reads a name, white space before it apart: kMore for a byte of it, kDone for one behind it,
  // kBroken for one behind nothing or too much.
  Read ReadWord(char c, std::string* word);

  // Whether a literal was begun.
  bool in_literal() const { return !read_.empty(); }

 private:
  std::string read_;  // of the literal
  std::string unread_;
};

// OpenAI's names have 64 characters.
inline constexpr size_t kMaxNameBytes = 256;
// Whether a name ends too late in front of a byte, which begins a character.
inline bool IsTooLong(std::string_view name, char next) {
  return name.size() >= kMaxNameBytes && (next & 0xC0) != 0x80;
}

}  // namespace pagefuse
