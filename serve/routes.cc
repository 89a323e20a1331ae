// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/serve/routes.h"

#include "pagefuse/serve/chat.h"
#include "pagefuse/serve/completions.h"
#include "pagefuse/serve/messages.h"
#include "pagefuse/serve/responses.h"
#include "pagefuse/serve/tokens_api.h"

namespace pagefuse::serve {
namespace {

constexpr Route kRoutes[] = {
    {"POST", "/v1/completions", ServeCompletions},
    {"POST", "/v1/chat/completions", ServeChat},
    {"POST", "/v1/responses", ServeResponses},
    {"POST", "/v1/messages", ServeMessages},
    {"POST", "/v1/messages/count_tokens", ServeCountTokens},
    {"POST", "/tokenize", ServeTokenize},
    {"POST", "/detokenize", ServeDetokenize},
    {"GET", "/v1/models"},
    {"GET", "/metrics"},
    {"POST", "/reset_prefix_cache"},
    {"POST", "/start_profile"},
    {"POST", "/stop_profile"},
    {"GET", "/health", nullptr, false, false},
    {"GET", "/version", nullptr, false, false},
};

}  // namespace

bool Route::IsAt(std::string_view at) const {
  return at == path || (path == kModelsPath && at.starts_with("/v1/models/") &&
                        at.size() > kModelsPath.size() + 1);
}

std::span<const Route> Routes() { return kRoutes; }

ErrorShape ErrorShapeAt(std::string_view path) {
  return path.starts_with("/v1/messages") ? AnthropicReplyOf : ReplyOf;
}

}  // namespace pagefuse::serve
