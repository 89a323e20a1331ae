// SPDX-License-Identifier: Apache-2.0
// The only source that includes Boost.
#include "pagefuse/serve/http.h"

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/serve/http_call-inl.h"
#include "pagefuse/serve/http_connection-inl.h"

namespace pagefuse::serve {
namespace {

class Server final : public HttpServer {
 public:
  Server(std::shared_ptr<Shared> shared, tcp::acceptor acceptor)
      : shared_(std::move(shared)), acceptor_(std::move(acceptor)), retry_(shared_->io) {
    port_ = acceptor_.local_endpoint().port();
    Accept();
    thread_ = std::thread([this] { shared_->io.run(); });
  }
  ~Server() override {
    Stop();
    // What replies said since then, which holds its connections until it is done.
    shared_->io.restart();
    shared_->io.poll();
    shared_->handler = nullptr;
  }
  void Stop() override {
    if (!thread_.joinable()) return;
    Close();
    asio::post(shared_->io, [this] {
      retry_.cancel();
      for (const auto& connection : Open()) connection->Abort();
    });
    thread_.join();  // nothing is left to do when all are closed
    shared_->stopped = true;
  }
  int port() const override { return port_; }
  int64_t connections() const override { return shared_->count; }
  void Close() override {
    asio::post(shared_->io, [this] {
      shared_->closing = true;
      Error ignored;
      acceptor_.close(ignored);
      for (const auto& connection : Open()) connection->CloseIfIdle();
    });
  }

 private:
  // They stay while they are gone through.
  std::vector<std::shared_ptr<Connection>> Open() const {
    std::vector<std::shared_ptr<Connection>> open;
    for (Connection* connection : shared_->open) open.push_back(connection->shared_from_this());
    return open;
  }
  void Accept() {
    acceptor_.async_accept([this](const Error& error, tcp::socket socket) {
      if (shared_->closing) return;
      if (error) return AcceptLater();
      const bool full =
          shared_->open.size() >= static_cast<size_t>(shared_->options.limits.connections);
      const auto connection = std::make_shared<Connection>(shared_, std::move(socket));
      if (full) {
        connection->Refuse(503, "there are as many connections as may be");
      } else {
        connection->Start();
      }
      Accept();
    });
  }
  // There may be no more descriptors.
  void AcceptLater() {
    constexpr std::chrono::milliseconds kWait(50);
    retry_.expires_after(kWait);
    retry_.async_wait([this](const Error& error) {
      if (!error && !shared_->closing) Accept();
    });
  }

  std::shared_ptr<Shared> shared_;
  tcp::acceptor acceptor_;
  asio::steady_timer retry_;
  int port_ = 0;
  std::thread thread_;
};

absl::StatusOr<tcp::acceptor> Bound(Shared& shared) {
  const HttpOptions& options = shared.options;
  const auto refuse = [&options](const Error& error) {
    return absl::InvalidArgumentError(
        StrCat("cannot listen at ", options.host, " port ", options.port, ": ", error.message()));
  };
  Error error;
  tcp::resolver resolver(shared.io);
  const auto found =
      resolver.resolve(options.host, StrCat(options.port),
                       tcp::resolver::passive | tcp::resolver::numeric_service, error);
  if (error) return refuse(error);
  tcp::acceptor acceptor(shared.io);
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(tcp::acceptor::max_listen_connections, error);
  if (error) return refuse(error);
  return acceptor;
}

}  // namespace

std::string_view HttpRequest::Header(std::string_view name) const {
  const auto it = std::ranges::find(headers, name, &std::pair<std::string, std::string>::first);
  return it == headers.end() ? std::string_view() : std::string_view(it->second);
}

std::string_view ReasonOf(int status) {
  return View(http::obsolete_reason(http::int_to_status(status)));
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Listen(const HttpOptions& options,
                                                               HttpHandler handler) {
  auto shared = std::make_shared<Shared>();
  shared->options = options;
  shared->handler = std::move(handler);
  PF_ASSIGN_OR_RETURN(tcp::acceptor acceptor, Bound(*shared));
  return std::make_unique<Server>(std::move(shared), std::move(acceptor));
}

absl::StatusOr<HttpAnswer> HttpCall(const std::string& url, const Headers& headers,
                                    const std::string& body,
                                    const std::function<bool(std::string_view)>& on_piece) {
  PF_ASSIGN_OR_RETURN(const Address address, ParseUrl(url));
  Caller caller;
  HttpAnswer answer;
  Error error = caller.Connect(address);
  if (!error) error = caller.Send(address, headers, body);
  if (!error) error = caller.Receive(on_piece, answer);
  if (!error) return answer;
  return absl::UnavailableError(
      StrCat(address.host, " port ", address.port, ": ", error.message()));
}

}  // namespace pagefuse::serve
