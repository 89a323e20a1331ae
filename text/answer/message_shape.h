// SPDX-License-Identifier: Apache-2.0
// Brings messages as OpenAI's API has them into the shape that a model's chat template reads.
#pragma once

#include <string_view>

#include "nlohmann/json.hpp"

namespace pagefuse {

// What a template expects of messages, found by rendering trials.
struct MessageShape {
  // Arguments of calls are objects: most templates write them with tojson, or member by member. Else texts of JSON, which reach the
  // model as they are.
  bool object_arguments = true;
  // What a message that has calls and no content has as its content.
  enum NoContent { kNull, kEmpty, kAbsent };
  NoContent no_content = kEmpty;
  // The template reads lists of parts of content; else these are joined.
  bool content_parts = false;
};
MessageShape FindMessageShape(std::string_view template_source);

// Changes `messages`, a list:
//   - arguments of calls, texts in the API, become objects if the template wants these (one that is no JSON object stays a text);
//   - content that is null or absent becomes what the shape says in a message with calls, and "" in others;
//   - a list of texts as content becomes one text with line breaks between, unless the template reads lists;
//   - a tool's answer gets the `name` of the call that its tool_call_id says, if it has none.
// What is no such message stays.
void NormaliseMessages(const MessageShape& shape, nlohmann::ordered_json* messages);

}  // namespace pagefuse
