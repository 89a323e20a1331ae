// SPDX-License-Identifier: Apache-2.0
// Renders the conversation that a model has learned to read from messages, by its chat template.
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json_fwd.hpp"

#include "pagefuse/text/text_range.h"

namespace pagefuse {

// What a template made: the text, and the ranges of it that come from messages and not from the
// template. Names of special tokens in those are text (Tokenizer::EncodeOptions::plain).
struct RenderedChat {
  std::string text;
  std::vector<TextRange> user;
};

// A template in the part of Jinja that chat templates use: if, for, set, macro, call, filter, with,
// namespaces, filters, tests and methods of strings and dicts. It reaches nothing but what it is given, and
// ends: 10^6 operations, 8 MiB of text, bounded depth. Thread-safe.
class ChatTemplate {
 public:
  // InvalidArgument or Unimplemented naming the line.
  static absl::StatusOr<std::shared_ptr<const ChatTemplate>> Parse(std::string_view source);
  ~ChatTemplate();

  // `own`: what belongs to the model, as bos_token. `given`: what users send, as messages and tools.
  // Both are objects; tools and documents are none where neither has them. `now` is what strftime_now tells. InvalidArgument with what the template
  // raised, or naming the line; ResourceExhausted past the limits.
  absl::StatusOr<RenderedChat> Render(const nlohmann::ordered_json& own,
                                      const nlohmann::ordered_json& given, std::time_t now) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace pagefuse
