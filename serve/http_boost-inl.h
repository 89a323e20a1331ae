// SPDX-License-Identifier: Apache-2.0
// What http.cc and the files beside it take of Boost. No other source includes them.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "absl/strings/ascii.h"
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include "pagefuse/base/str_cat.h"

namespace pagefuse::serve {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using Error = boost::system::error_code;
using asio::ip::tcp;
using Clock = std::chrono::steady_clock;

std::string Lowered(std::string_view text) { return absl::AsciiStrToLower(AbslView(text)); }

std::string_view View(boost::core::string_view text) { return {text.data(), text.size()}; }

}  // namespace
}  // namespace pagefuse::serve
