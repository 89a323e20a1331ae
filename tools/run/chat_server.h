// SPDX-License-Identifier: Apache-2.0
// A conversation with a server of OpenAI's chat completions, ours or another one.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tools/run/chat_loop.h"
#include "tools/run/generate.h"

namespace pagefuse::tools {

// Asks the server at `url`, "http://127.0.0.1:8080", for its model. `key` may be empty. Of the flags those of
// sampling and of what ends an answer are sent. Unavailable, Unauthenticated or InvalidArgument naming --url where
// there is no such server, or none that holds conversations.
absl::StatusOr<std::unique_ptr<ChatPartner>> ConnectToServer(const std::string& url,
                                                             const std::string& key,
                                                             const GenerateFlags& flags);

}  // namespace pagefuse::tools
