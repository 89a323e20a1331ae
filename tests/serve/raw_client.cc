// SPDX-License-Identifier: Apache-2.0
#include "raw_client.h"

#include <cstdlib>
#include <thread>

#include <unistd.h>

#include "absl/strings/ascii.h"
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "pagefuse/base/str_cat.h"

namespace pagefuse::serve {
namespace {

// Of a header field; empty where there is none.
std::string ValueOf(const std::string& head, std::string_view name) {
  const std::string lower = absl::AsciiStrToLower(head), wanted = StrCat("\r\n", name, ": ");
  const size_t at = lower.find(wanted);
  if (at == std::string::npos) return "";
  const size_t begin = at + wanted.size();
  return head.substr(begin, head.find('\r', begin) - begin);
}

}  // namespace

bool Becomes(const std::function<bool()>& check) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!check()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

RawClient::RawClient(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const timeval patience = {.tv_sec = kPatience.count(), .tv_usec = 0};
  setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  EXPECT_EQ(connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
}

void RawClient::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;  // the other side has had enough
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

void RawClient::Post(std::string_view path, std::string_view body, std::string_view lines) {
  Send(StrCat("POST ", path,
              " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ",
              body.size(), "\r\n", lines, "\r\n", body));
}

void RawClient::Get(std::string_view path, std::string_view lines) {
  Send(StrCat("GET ", path, " HTTP/1.1\r\nHost: localhost\r\n", lines, "\r\n"));
}

bool RawClient::More() {
  char piece[4096];
  const ssize_t got = ::recv(socket_, piece, sizeof piece, 0);
  if (got > 0) buffer_.append(piece, static_cast<size_t>(got));
  return got > 0;
}

std::string RawClient::ReadTo(std::string_view end) {
  size_t at;
  while ((at = buffer_.find(end)) == std::string::npos) {
    if (!More()) return std::exchange(buffer_, "");
  }
  std::string text = buffer_.substr(0, at + end.size());
  buffer_.erase(0, at + end.size());
  return text;
}

std::string RawClient::ReadAll() {
  while (More()) {
  }
  return std::exchange(buffer_, "");
}

RawReply RawClient::Read(bool is_head) {
  RawReply reply;
  reply.head = ReadTo("\r\n\r\n");
  if (!reply.head.ends_with("\r\n\r\n")) return reply;
  reply.status = std::atoi(reply.head.c_str() + std::string_view("HTTP/1.1 ").size());
  if (ValueOf(reply.head, "transfer-encoding") == "chunked" && !is_head) {
    for (size_t size = 1; size > 0;) {
      const std::string line = ReadTo("\r\n");
      if (!line.ends_with("\r\n")) return reply;
      size = std::strtoul(line.c_str(), nullptr, 16);
      while (buffer_.size() < size + 2) {
        if (!More()) return reply;
      }
      if (size > 0) reply.chunks.push_back(buffer_.substr(0, size));
      reply.body += buffer_.substr(0, size);
      buffer_.erase(0, size + 2);
    }
    reply.whole = true;
    return reply;
  }
  const std::string length = ValueOf(reply.head, "content-length");
  is_head |= reply.status == 204;
  const size_t size = is_head ? 0 : std::strtoul(length.c_str(), nullptr, 10);
  if (length.empty() && !is_head) {
    reply.body = ReadAll();
    return reply;
  }
  while (buffer_.size() < size) {
    if (!More()) return reply;
  }
  reply.body = buffer_.substr(0, size);
  buffer_.erase(0, size);
  reply.whole = true;
  return reply;
}

void RawClient::EndWriting() { shutdown(socket_, SHUT_WR); }

void RawClient::Reset() {
  const linger at_once = {.l_onoff = 1, .l_linger = 0};
  setsockopt(socket_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  Leave();
}

void RawClient::Leave() {
  if (socket_ >= 0) close(std::exchange(socket_, -1));
}

}  // namespace pagefuse::serve
