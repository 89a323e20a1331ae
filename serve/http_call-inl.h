// SPDX-License-Identifier: Apache-2.0
// A call of the client. A part of http.cc.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <string>

#include "absl/status/statusor.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/serve/http.h"
#include "pagefuse/serve/http_boost-inl.h"

namespace pagefuse::serve {
namespace {

struct Address {
  std::string host, port, path;
};

absl::StatusOr<Address> ParseUrl(std::string_view url) {
  constexpr std::string_view kScheme = "http://";
  const auto wrong = [&url] {
    return absl::InvalidArgumentError(StrCat("expected http://HOST[:PORT], got \"", url, "\""));
  };
  if (!url.starts_with(kScheme)) return wrong();
  std::string_view rest = url.substr(kScheme.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  Address address = {.host = std::string(rest.substr(0, slash)),
                     .port = "80",
                     .path = std::string(rest.substr(slash))};
  if (address.path.empty()) address.path = "/";
  const size_t colon = address.host.rfind(':');
  if (colon != std::string::npos && address.host.find(']', colon) == std::string::npos) {
    address.port = address.host.substr(colon + 1);
    address.host.resize(colon);
  }
  if (address.host.starts_with('[') && address.host.ends_with(']')) {
    address.host = address.host.substr(1, address.host.size() - 2);
  }
  if (address.host.empty() || address.port.empty()) return wrong();
  return address;
}

// Sends a call and hands out what comes back.
class Caller {
 public:
  Error Connect(const Address& address) {
    Error error;
    tcp::resolver resolver(io_);
    const auto found = resolver.resolve(address.host, address.port, error);
    if (!error) asio::connect(socket_, found, error);
    return error;
  }
  Error Send(const Address& address, const Headers& headers, const std::string& body) {
    http::request<http::string_body> request(body.empty() ? http::verb::get : http::verb::post,
                                             address.path, 11);
    request.set(http::field::host, StrCat(address.host, ":", address.port));
    request.set(http::field::connection, "close");
    for (const auto& [name, value] : headers) request.set(name, value);
    request.body() = body;
    request.prepare_payload();
    Error error;
    http::write(socket_, request, error);
    return error;
  }
  Error Receive(const std::function<bool(std::string_view)>& on_piece, HttpAnswer& answer) {
    Error error;
    beast::flat_buffer buffer;
    http::response_parser<http::buffer_body> parser;
    parser.body_limit(boost::none);
    http::read_header(socket_, buffer, parser, error);
    if (error) return error;
    answer.status = parser.get().result_int();
    for (const auto& field : parser.get()) {
      answer.headers.emplace_back(Lowered(View(field.name_string())),
                                  std::string(View(field.value())));
    }
    std::array<char, 8192> piece;
    while (!parser.is_done()) {
      parser.get().body().data = piece.data();
      parser.get().body().size = piece.size();
      http::read_some(socket_, buffer, parser, error);
      if (error == http::error::need_buffer) error = {};
      const size_t bytes = piece.size() - parser.get().body().size;
      if (bytes > 0 && !on_piece({piece.data(), bytes})) return {};
      if (error) return error;
    }
    return {};
  }

 private:
  asio::io_context io_;
  tcp::socket socket_{io_};
};

}  // namespace
}  // namespace pagefuse::serve
