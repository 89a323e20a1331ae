// SPDX-License-Identifier: Apache-2.0
// Converts text to token ids and back, as tokenizer.json of a model's folder says.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/text/text_range.h"
#include "pagefuse/text/utf8.h"

namespace pagefuse {

// Byte pair encodings of Hugging Face's tokenizers, byte-level (DeepSeek, Llama 3, Qwen) and with
// byte fallback (Gemma): the same ids as that library gives. Thread-safe.
class Tokenizer {
 public:
  // Reads the text of tokenizer.json. InvalidArgument or Unimplemented naming the member, what was
  // expected and what is there.
  static absl::StatusOr<std::shared_ptr<const Tokenizer>> Parse(const std::string& json);
  // The same for a file, which errors name.
  static absl::StatusOr<std::shared_ptr<const Tokenizer>> Load(const std::string& path);
  // Token n is the byte n, for the 256 of them.
  static absl::StatusOr<std::shared_ptr<const Tokenizer>> OfBytes();
  ~Tokenizer();

  struct EncodeOptions {
    bool adds_special = true;  // the tokens that the file puts around every text, <bos> as a rule
    // Ranges, ascending, in which the name of a special token is text like any other: what users
    // wrote, in a prompt that a template made.
    std::vector<TextRange> plain = {};
  };
  // InvalidArgument naming the first byte that is no UTF-8; ResourceExhausted where a pattern of the
  // file would take forever.
  absl::StatusOr<std::vector<int64_t>> Encode(std::string_view text,
                                              const EncodeOptions& options) const;
  absl::StatusOr<std::vector<int64_t>> Encode(std::string_view text) const;

  // The text of tokens, U+FFFD for bytes that are no character. Special tokens have no text unless
  // `special`; ids that no token has have none.
  std::string Decode(std::span<const int64_t> ids, bool special = false) const;

  // The bytes that a token adds to a text, characters or parts of them. `first`: it begins the text.
  std::string Bytes(int64_t id, bool first = false) const;
  bool IsSpecial(int64_t id) const;
  // The token with this text, as the file spells it.
  std::optional<int64_t> Find(std::string_view token) const;
  // One more than the largest id.
  int64_t size() const;

 private:
  friend class TextStream;
  struct Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

// Tokens in, text out as soon as it is complete: never a part of a character. The pieces joined are
// Tokenizer::Decode of all ids.
class TextStream {
 public:
  explicit TextStream(std::shared_ptr<const Tokenizer> tokenizer, bool special = false)
      : tokenizer_(std::move(tokenizer)), special_(special) {}

  std::string Add(int64_t id);
  std::string Finish();

 private:
  std::string Begun(std::string text, bool end);

  std::shared_ptr<const Tokenizer> tokenizer_;
  bool special_;
  bool first_token_ = true;
  bool begun_ = false;   // a piece has come out
  std::string leading_;  // held until it is known what does not belong to the text
  Utf8Stream utf8_;
};

}  // namespace pagefuse
