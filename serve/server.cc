// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/serve/server.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/serve/access.h"
#include "pagefuse/serve/http_error.h"
#include "pagefuse/serve/page.h"
#include "pagefuse/serve/routes.h"
#include "pagefuse/serve/service.h"
#include "pagefuse/serve/tokens_api.h"

namespace pagefuse::serve {
namespace {

void SendJson(HttpReply& reply, int status, const Json& json) {
  reply.Send(status, {{"Content-Type", "application/json"}}, Dump(json));
}

// For pages from elsewhere that may call.
Headers Cors(const ServeOptions& options) {
  if (options.cors_origin.empty()) return {};
  return {{"Access-Control-Allow-Origin", options.cors_origin},
          {"Access-Control-Allow-Methods", "GET, POST, OPTIONS"},
          {"Access-Control-Allow-Headers", "*, Authorization"},
          {"Access-Control-Expose-Headers", "*"},
          {"Vary", "Origin"}};
}

}  // namespace

struct Server::Impl {
  ServeOptions options;
  Log* log;
  std::unique_ptr<Service> service;
  std::atomic<Service*> ready = nullptr;
  std::atomic<bool> draining = false;
  std::unique_ptr<HttpServer> http;  // ends first

  // By the thread of the network.
  void Handle(HttpRequest request, const std::shared_ptr<HttpReply>& reply) {
    const ErrorShape shape = ErrorShapeAt(request.path);
    const absl::Status status = Dispatch(request, reply);
    if (!status.ok()) Refuse(status, shape, *reply);
  }
  void Refuse(const absl::Status& error, ErrorShape shape, HttpReply& reply) {
    if (Service* service = ready) return service->Refuse(error, shape, reply);
    SendRefusal(error, shape, *log, reply);
  }

  // What never became a request.
  void Count(int status) {
    if (Service* service = ready) service->CountRefusal(status);
    log->Add("refused", {{"status", status}});
  }

  absl::Status Dispatch(HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
    PF_RETURN_IF_ERROR(CheckHost(request, options.host, options.allowed_hosts));
    if (request.method == "OPTIONS" && !options.cors_origin.empty()) {
      reply->Send(204, {}, "");
      return absl::OkStatus();
    }
    if (options.page && SendPage(request, *reply)) return absl::OkStatus();
    PF_ASSIGN_OR_RETURN(const Route* route, FindRoute(request));
    if (route->needs_key) PF_RETURN_IF_ERROR(CheckKey(request, options.keys));
    Service* service = ready;
    if (route->needs_model && service == nullptr) {
      return WithCode(absl::UnavailableError("the model is being loaded"), "loading");
    }
    if (route->serve == nullptr) return Tell(request, reply);
    service->Answer(*route, std::move(request), reply);
    return absl::OkStatus();
  }
  // Needs no key: it says nothing of the model, and asks for one.
  static bool SendPage(const HttpRequest& request, HttpReply& reply) {
    if (request.method != "GET" && request.method != "HEAD") return false;
    auto file = FindPageFile(request.path);
    if (file) reply.Send(200, std::move(file->headers), std::string(file->body));
    return file.has_value();
  }

  // 404, or 405 with the method that there is.
  static absl::StatusOr<const Route*> FindRoute(const HttpRequest& request) {
    std::string allowed;
    for (const Route& route : Routes()) {
      if (!route.IsAt(request.path)) continue;
      const bool is_head = request.method == "HEAD" && std::string_view(route.method) == "GET";
      if (request.method == route.method || is_head) return &route;
      allowed = route.method;
    }
    if (allowed.empty()) {
      return absl::NotFoundError("path: expected one of the routes in docs/serve.md");
    }
    const std::string what = StrCat("method: expected ", allowed);
    return WithAllow(absl::InvalidArgumentError(AbslView(what)), allowed);
  }

  // What needs no worker.
  absl::Status Tell(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
    if (request.path == "/version") {
      SendJson(*reply, 200, {{"version", PAGEFUSE_VERSION}});
      return absl::OkStatus();
    }
    Service* service = ready;
    if (request.path == "/health") {
      const bool healthy = service != nullptr && !draining;
      SendJson(*reply, healthy ? 200 : 503,
               {{"status", healthy    ? "ok"
                           : draining ? "draining"
                                      : "loading"}});
      return absl::OkStatus();
    }
    if (request.path.starts_with(kModelsPath)) {
      const size_t skip = std::min(kModelsPath.size() + 1, request.path.size());
      PF_ASSIGN_OR_RETURN(const Json json, ModelsJson(service->model(), request.path.substr(skip)));
      SendJson(*reply, 200, json);
      return absl::OkStatus();
    }
    if (request.path == "/metrics") {
      reply->Send(200, {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}},
                  service->PrintMetrics());
      return absl::OkStatus();
    }
    if (request.path == "/reset_prefix_cache") return Reset(*service, reply);
    return Profile(request.path == "/start_profile", *reply);
  }
  absl::Status Profile(bool starts, HttpReply& reply) {
    PF_RETURN_IF_ERROR(CheckHasKeys());
    if (options.trace == nullptr) {
      return absl::FailedPreconditionError("expected a server with --trace FILE");
    }
    if (!starts) options.trace->End();
    if (starts) PF_RETURN_IF_ERROR(options.trace->Begin());
    SendJson(reply, 200, {{"status", "ok"}});
    return absl::OkStatus();
  }
  // What changes the server is for those who run it.
  absl::Status CheckHasKeys() const {
    if (!options.keys.empty()) return absl::OkStatus();
    return absl::PermissionDeniedError("expected a server with --api-key-file");
  }
  absl::Status Reset(Service& service, const std::shared_ptr<HttpReply>& reply) {
    PF_RETURN_IF_ERROR(CheckHasKeys());
    service.ForgetTexts([reply] { SendJson(*reply, 200, {{"status", "ok"}}); });
    return absl::OkStatus();
  }
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() {
  // Who calls what serves ends before it; replies to connections that are no more are dropped.
  impl_->http->Stop();
  impl_->ready = nullptr;
  impl_->service.reset();
}

absl::StatusOr<std::unique_ptr<Server>> Server::Listen(const ServeOptions& options, Log* log) {
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  impl->log = log;
  Impl* const self = impl.get();
  PF_ASSIGN_OR_RETURN(
      impl->http, HttpServer::Listen({options.host, options.port, options.limits, Cors(options),
                                      [self](int status) { self->Count(status); }},
                                     [self](HttpRequest request, std::shared_ptr<HttpReply> reply) {
                                       self->Handle(std::move(request), reply);
                                     }));
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

void Server::Serve(ServedModel model) {
  const ServeOptions& options = impl_->options;
  impl_->service =
      std::make_unique<Service>(std::move(model),
                                ServiceOptions{.limits = options.limits,
                                               .strict = options.strict,
                                               .log_prompts = options.log_prompts,
                                               .metrics_prefix = options.metrics_prefix,
                                               .workers = options.workers,
                                               .trace = options.trace},
                                impl_->log);
  impl_->ready = impl_->service.get();
}

int Server::port() const { return impl_->http->port(); }

void Server::Drain(const std::function<bool()>& hurry) {
  impl_->draining = true;
  if (Service* service = impl_->ready) {
    Generations& generations = service->generations();
    generations.Drain();
    const auto deadline = std::chrono::steady_clock::now() + impl_->options.limits.drain;
    constexpr std::chrono::milliseconds kRound(20);
    bool done = false;
    while (!done && std::chrono::steady_clock::now() < deadline && !hurry()) {
      done = generations.WaitUntil(std::chrono::steady_clock::now() + kRound);
    }
    while (!done && !hurry()) {
      generations.CancelAll();
      done = generations.WaitUntil(std::chrono::steady_clock::now() + kRound);
    }
  }
  impl_->http->Close();
  // What was said last is on its way.
  constexpr int kRounds = 100;
  constexpr std::chrono::milliseconds kRound(20);
  for (int i = 0; i < kRounds && impl_->http->connections() > 0 && !hurry(); ++i) {
    std::this_thread::sleep_for(kRound);
  }
}

}  // namespace pagefuse::serve
