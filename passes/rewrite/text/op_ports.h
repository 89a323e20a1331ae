// SPDX-License-Identifier: Apache-2.0
// Parses the head of an op as text: its name, attributes and typed ports.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/passes/rewrite/text_place.h"

namespace pagefuse {

// `T[N, D] bias?`; views are into the text.
struct TextPort {
  std::string_view type;   // empty where none stands
  std::string_view shape;  // with its brackets
  std::string_view name;
  bool is_optional = false;
};

struct TextHead {
  std::vector<TextPort> inputs, outputs;
  // The text with blanks in place of types, dims and marks: a function that the text parser reads,
  // every place in it where it was.
  std::string plain;
};

// Reads the ports of a function text, with its header and attributes, and no more.
absl::StatusOr<TextHead> ReadHead(std::string_view text, const PlaceError& error);

}  // namespace pagefuse
