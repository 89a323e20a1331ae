// SPDX-License-Identifier: Apache-2.0
// HTTP/1.1 as the server speaks it: requests in, replies out, whole or in pieces. http.cc alone knows the
// library behind it (Boost.Beast).
//
// Source: RFC 9110 and RFC 9112; what those leave to a server is refused (CheckHead).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/serve/limits.h"

namespace pagefuse::serve {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // without the query, as it was sent
  std::string query;
  Headers headers;  // names in lower case
  std::string body;

  // Empty where there is none; of several the first.
  std::string_view Header(std::string_view name) const;
};

// One answer. All calls may come from any thread and do not block; what comes after the end, or after
// the client has left, is dropped.
class HttpReply {
 public:
  virtual ~HttpReply() = default;
  // A whole reply.
  virtual void Send(int status, Headers headers, std::string body) = 0;
  // The beginning of one in pieces, which Write and End follow. `ping`: what is written when nothing else was
  // for Limits::ping; may be empty.
  virtual void Begin(int status, Headers headers, std::string ping) = 0;
  virtual void Write(std::string piece) = 0;
  virtual void End() = 0;
  // The client has left, or reads nothing, before the end: `gone` is called once, soon after, by the
  // thread of the network.
  virtual void OnGone(std::function<void()> gone) = 0;
};

// Called by the thread of the network; must not block.
using HttpHandler = std::function<void(HttpRequest, std::shared_ptr<HttpReply>)>;

struct HttpOptions {
  std::string host = "127.0.0.1";  // an address, or a name that has one
  int port = 8080;                 // 0: one that is free
  Limits limits = {};
  Headers headers = {};  // of all replies
  // Told the status of what is refused before it is a request, by the thread of the network. May be null.
  std::function<void(int status)> on_refused = nullptr;
};

// Listens, reads and writes with one thread. Bad requests are answered here with OpenAI's shape of error.
class HttpServer {
 public:
  // InvalidArgument naming host and port that cannot be had.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Listen(const HttpOptions& options,
                                                            HttpHandler handler);
  // Ends all connections.
  virtual ~HttpServer() = default;
  virtual int port() const = 0;
  // Takes no more connections, and ends those on which nothing is to be written, others when it is.
  virtual void Close() = 0;
  // Ends all connections, and calls nobody any more when it returns. Replies may go on, and are dropped.
  virtual void Stop() = 0;
  virtual int64_t connections() const = 0;
};

struct HttpAnswer {
  int status = 0;
  Headers headers;  // names in lower case
};

// A client of one call: `body` is posted if there is one. `on_piece` gets the body as it comes; false
// ends the call. `url`: "http://host:port/path". Unavailable naming the address.
absl::StatusOr<HttpAnswer> HttpCall(const std::string& url, const Headers& headers,
                                    const std::string& body,
                                    const std::function<bool(std::string_view)>& on_piece);

// "Not Found"; empty for a status that has no name.
std::string_view ReasonOf(int status);

}  // namespace pagefuse::serve
