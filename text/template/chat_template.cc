// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/template/chat_template.h"

#include <utility>

#include "nlohmann/json.hpp"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/text/template/template_ast.h"
#include "pagefuse/text/template/template_eval.h"

namespace pagefuse {

struct ChatTemplate::Impl {
  chat_template::Body body;
};

ChatTemplate::ChatTemplate(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::~ChatTemplate() = default;

absl::StatusOr<std::shared_ptr<const ChatTemplate>> ChatTemplate::Parse(std::string_view source) {
  auto impl = std::make_unique<Impl>();
  PF_ASSIGN_OR_RETURN(impl->body, chat_template::ParseTemplate(source));
  return std::shared_ptr<const ChatTemplate>(new ChatTemplate(std::move(impl)));
}

absl::StatusOr<RenderedChat> ChatTemplate::Render(const nlohmann::ordered_json& own,
                                                  const nlohmann::ordered_json& given,
                                                  std::time_t now) const {
  chat_template::Evaluator evaluator(now);
  // Templates ask whether these are none, and take an undefined value for one that is given.
  for (const char* name : {"tools", "documents"}) {
    evaluator.Set(name, chat_template::Value(chat_template::None()));
  }
  for (const auto* object : {&own, &given}) {
    for (const auto& [name, item] : object->items()) {
      PF_ASSIGN_OR_RETURN(chat_template::Value value,
                          chat_template::Value::FromJson(item, /*user=*/object == &given));
      evaluator.Set(name, std::move(value));
    }
  }
  PF_ASSIGN_OR_RETURN(const MarkedText text, evaluator.Run(impl_->body));
  return RenderedChat{text.bytes(), text.user()};
}

}  // namespace pagefuse
