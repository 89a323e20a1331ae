// SPDX-License-Identifier: Apache-2.0
// Finds out by rendering what a chat template does with tools, calls and content.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "nlohmann/json.hpp"

#include "pagefuse/text/template/chat_template.h"

namespace pagefuse {

class TemplateTrial {
 public:
  // A source that is no template, or none, renders nothing.
  explicit TemplateTrial(std::string_view source);

  // What becomes of messages, tools being given to the template; empty if it fails.
  std::string Rendered(const nlohmann::ordered_json& messages) const;
  // Whether the model sees the tools.
  bool TakesTools() const;

 private:
  std::shared_ptr<const ChatTemplate> template_;
};

}  // namespace pagefuse
