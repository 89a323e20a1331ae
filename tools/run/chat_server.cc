// SPDX-License-Identifier: Apache-2.0
#include "tools/run/chat_server.h"

#include <algorithm>
#include <iostream>
#include <optional>
#include <utility>

#include <unistd.h>

#include "tools/cli/interrupt.h"
#include "tools/cli/output.h"
#include "tools/run/conversation.h"
#include "tools/run/server_stream.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/status_place.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/serve/http.h"

namespace pagefuse::tools {
namespace {

using Json = nlohmann::ordered_json;

// "http://a:1/v1/" and "http://a:1" are the same server.
std::string BaseOf(std::string url) {
  while (url.ends_with('/')) url.pop_back();
  if (url.ends_with("/v1")) url.resize(url.size() - 3);
  return url;
}

template <typename Value>
void SetIf(const std::optional<Value>& flag, const char* name, Json& request) {
  if (flag) request[name] = *flag;
}

// What the flags say of every answer.
Json FieldsOf(const GenerateFlags& flags) {
  Json request = Json::object();
  const SamplingFlags& sampling = flags.sampling;
  SetIf(sampling.temperature, "temperature", request);
  SetIf(sampling.top_p, "top_p", request);
  SetIf(sampling.min_p, "min_p", request);
  SetIf(sampling.top_k, "top_k", request);
  SetIf(sampling.seed, "seed", request);
  SetIf(sampling.repetition_penalty, "repetition_penalty", request);
  SetIf(sampling.frequency_penalty, "frequency_penalty", request);
  SetIf(sampling.presence_penalty, "presence_penalty", request);
  if (!flags.stops.empty()) request["stop"] = flags.stops;
  if (flags.ignore_end) request["ignore_eos"] = true;
  return request;
}

// Shows an answer, and on a terminal the reasoning before it, dim: a pipe has the answers alone.
class ShownAnswer {
 public:
  void Think(const std::string& piece) {
    if (!terminal_) return;
    thinks_ = true;
    std::cerr << "\x1b[2m" << piece << "\x1b[0m" << std::flush;
  }
  void Show(const std::string& piece) {
    if (std::exchange(thinks_, false)) std::cerr << "\n";
    std::cout << piece << std::flush;
  }

 private:
  bool terminal_ = isatty(STDERR_FILENO) == 1, thinks_ = false;
};

class ServerPartner final : public ChatPartner {
 public:
  ServerPartner(std::string url, std::string key, const GenerateFlags& flags)
      : url_(std::move(url)),
        base_(BaseOf(url_)),
        key_(std::move(key)),
        max_new_tokens_(flags.max_new_tokens),
        fields_(FieldsOf(flags)) {}

  // The model that it serves, and whether that holds conversations.
  absl::Status Connect(const std::string& system) {
    PF_ASSIGN_OR_RETURN(const Reply reply, Fetch("/v1/models", ""));
    if (reply.status != 200) return RefusalOf(reply);
    const Json* model = nullptr;
    if (const Json* data = MemberOf(reply.body, "data"); data != nullptr && data->is_array()) {
      if (!data->empty()) model = &data->front();
    }
    const Json* id = model == nullptr ? nullptr : MemberOf(*model, "id");
    if (id == nullptr || !id->is_string()) {
      return AtUrl(absl::InvalidArgumentError(
          "expected a server of OpenAI's API, got none: /v1/models names no model"));
    }
    fields_["model"] = *id;
    const Json* most = MemberOf(*model, "max_model_len");
    if (most != nullptr && most->is_number_integer()) context_ = most->get<int64_t>();
    Conversation shortest(system);
    shortest.Ask("?");
    return AtUrl(Take(shortest.messages()).status());
  }

  absl::StatusOr<std::optional<int64_t>> Take(const Json& messages) override {
    messages_ = messages;
    tokens_.reset();
    const Json request = {{"model", fields_["model"]}, {"messages", messages}};
    PF_ASSIGN_OR_RETURN(const Reply reply, Fetch("/tokenize", JsonText(request)));
    constexpr int kNotFound = 404, kNoMethod = 405;
    if (reply.status == kNotFound || reply.status == kNoMethod) return tokens_;  // not all have it
    if (reply.status != 200) return ErrorOfReply(reply.status, reply.text);
    const Json* count = MemberOf(reply.body, "count");
    if (count != nullptr && count->is_number_integer()) tokens_ = count->get<int64_t>();
    return tokens_;
  }

  std::optional<int64_t> Context() const override { return context_; }
  int64_t LeastAnswer() const override { return max_new_tokens_.value_or(1); }
  // The server tells.
  absl::Status CheckRoom() override { return absl::OkStatus(); }

  absl::StatusOr<std::string> Answer() override {
    ShownAnswer shown;
    ServerStream stream([&](const std::string& piece) { shown.Show(piece); },
                        [&](const std::string& piece) { shown.Think(piece); });
    const auto reply = serve::HttpCall(StrCat(base_, "/v1/chat/completions"), HeadersOf(),
                                       JsonText(RequestOfChat()), [&](std::string_view piece) {
                                         stream.Take(piece);
                                         return stream.error().ok() && !stream.ended() &&
                                                !InterruptCatcher::Pending();
                                       });
    const bool interrupted = InterruptCatcher::Take();
    if (interrupted && stream.text().empty()) {
      return absl::CancelledError("stopped before the answer: the question is taken back");
    }
    if (!stream.text().empty() && !stream.text().ends_with('\n')) std::cout << "\n" << std::flush;
    if (interrupted) return stream.text();
    PF_RETURN_IF_ERROR(AtUrl(reply.status()));
    if (reply->status != 200) return ErrorOfReply(reply->status, stream.rest());
    PF_RETURN_IF_ERROR(stream.error());
    if (!stream.ended()) return AtUrl(absl::UnavailableError("the answer broke off"));
    if (stream.text().empty()) std::cout << "\n" << std::flush;
    return stream.text();
  }

 private:
  struct Reply {
    int status = 0;
    std::string text;
    Json body;  // null where it is no JSON
  };

  absl::Status AtUrl(const absl::Status& status) const {
    return AtPlace(StrCat("--url \"", url_, "\""), status);
  }
  absl::Status RefusalOf(const Reply& reply) const {
    constexpr int kNotFound = 404;
    if (reply.status != kNotFound) return AtUrl(ErrorOfReply(reply.status, reply.text));
    return AtUrl(absl::InvalidArgumentError(
        "expected a server of OpenAI's API, got one that has no /v1/models"));
  }

  serve::Headers HeadersOf() const {
    serve::Headers headers = {{"Content-Type", "application/json"}};
    if (!key_.empty()) headers.emplace_back("Authorization", StrCat("Bearer ", key_));
    return headers;
  }
  absl::StatusOr<Reply> Fetch(const std::string& path, const std::string& body) const {
    constexpr size_t kMost = size_t{16} << 20;
    Reply reply;
    auto answer =
        serve::HttpCall(StrCat(base_, path), HeadersOf(), body, [&](std::string_view piece) {
          reply.text += piece;
          return reply.text.size() < kMost;
        });
    if (!answer.ok()) return AtUrl(answer.status());
    reply.status = answer->status;
    reply.body = ParseReply(reply.text);
    return reply;
  }

  Json RequestOfChat() const {
    Json request = fields_;
    request["messages"] = messages_;
    request["stream"] = true;
    std::optional<int64_t> most = max_new_tokens_;
    // As many as in this process: what is left, if that is less.
    if (!most && context_ && tokens_) most = std::min(kUsualAnswer, *context_ - *tokens_);
    if (most) request["max_tokens"] = std::max<int64_t>(*most, 1);
    return request;
  }

  std::string url_, base_, key_;
  std::optional<int64_t> max_new_tokens_, context_, tokens_;
  Json fields_, messages_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ChatPartner>> ConnectToServer(const std::string& url,
                                                             const std::string& key,
                                                             const GenerateFlags& flags) {
  auto partner = std::make_unique<ServerPartner>(url, key, flags);
  PF_RETURN_IF_ERROR(partner->Connect(flags.system));
  return partner;
}

}  // namespace pagefuse::tools
