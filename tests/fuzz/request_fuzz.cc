// SPDX-License-Identifier: Apache-2.0
// Any body of a request is JSON that another parser reads alike, or refused with its place; whatever stands in it, members are
// read or refused with their names.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "nlohmann/json.hpp"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/serve/chat_prompt.h"
#include "pagefuse/serve/fields.h"
#include "pagefuse/serve/http_error.h"
#include "pagefuse/serve/json_input.h"

namespace pagefuse::serve {
namespace {

void CheckRefused(const absl::Status& status) {
  if (status.ok()) return;
  PF_CHECK(absl::IsInvalidArgument(status));
  PF_CHECK(Json::accept(OpenAiError(status)));
  PF_CHECK(Json::accept(AnthropicError(status)));
}

void ReadAll(Fields& fields) {
  for (const char* name : {"n", "a", "messages"}) {
    CheckRefused(fields.Number(name, -2, 2).status());
    CheckRefused(fields.Integer(name, -5, int64_t{1} << 40).status());
    CheckRefused(fields.Flag(name).status());
    CheckRefused(fields.Text(name).status());
    CheckRefused(fields.OneOf(name, {"x", "y"}).status());
    CheckRefused(fields.Object(name).status());
    CheckRefused(fields.Texts(name, 4).status());
    CheckRefused(fields.Integers(name, 4).status());
  }
  fields.Ignored();
}

void CheckBody(const Json& body) {
  auto fields = Fields::Of(body, "");
  CheckRefused(fields.status());
  if (!fields.ok()) return;
  ReadAll(*fields);
  const Json* messages = fields->Find("messages");
  if (messages == nullptr) return;
  const auto checked = CheckMessages(*messages, "messages");
  CheckRefused(checked.status());
  if (!checked.ok()) return;
  PF_CHECK(ParamOf(checked.status()).empty());
  // Messages that were taken are taken again, and say the same.
  const auto again = CheckMessages(*checked, "messages");
  PF_CHECK(again.ok() && *again == *checked);
}

}  // namespace
}  // namespace pagefuse::serve

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using pagefuse::serve::Json;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  constexpr pagefuse::serve::JsonLimits kLimits = {.depth = 20, .values = 500};
  const auto body = pagefuse::serve::ParseJson(text, kLimits);
  pagefuse::serve::CheckRefused(body.status());
  if (!body.ok()) return 0;
  PF_CHECK(*body == Json::parse(text));
  pagefuse::serve::CheckBody(*body);
  return 0;
}
