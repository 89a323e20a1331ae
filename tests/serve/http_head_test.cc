// SPDX-License-Identifier: Apache-2.0
// Heads of requests that are taken, and those that two servers could read in two ways.
#include "pagefuse/serve/http_head.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/base/str_cat.h"

namespace pagefuse::serve {
namespace {

using ::testing::HasSubstr;

std::string Get(std::string_view lines) { return StrCat("GET /a HTTP/1.1\r\n", lines, "\r\n"); }

TEST(HttpHead, PlainHeadsAreTaken) {
  for (const std::string& head : {
           Get("Host: a\r\n"),
           Get("Host: a\r\nContent-Length: 0\r\n"),
           Get("host:a\r\ncontent-length:\t 12 \t\r\n"),
           Get("Host: a\r\nTransfer-Encoding: Chunked\r\n"),
           Get("Host: a\r\nX-Content-Length: b\r\nX: content-length: 7\r\n"),
           Get("Host: a\r\nX: \xc3\xa4\r\nEmpty:\r\n"),
           Get(""),  // whether there must be a host is asked elsewhere
           std::string("POST /a?b=c&d=%20 HTTP/1.0\r\n\r\n"),
       }) {
    EXPECT_TRUE(CheckHead(head).ok()) << head << CheckHead(head);
  }
}

struct BadHead {
  std::string head;
  const char* said;
};

TEST(HttpHead, WhatCanBeReadInTwoWaysIsRefused) {
  const BadHead heads[] = {
      {Get("Content-Length: 1\r\nContent-Length: 1\r\n"), "Content-Length: expected one"},
      {Get("Content-Length: 1\r\ncontent-LENGTH: 2\r\n"), "Content-Length: expected one"},
      {Get("Content-Length: 1, 1\r\n"), "Content-Length: expected a number"},
      {Get("Content-Length: +1\r\n"), "Content-Length: expected a number"},
      {Get("Content-Length: -1\r\n"), "Content-Length: expected a number"},
      {Get("Content-Length: 0x1\r\n"), "Content-Length: expected a number"},
      {Get("Content-Length: 1 2\r\n"), "Content-Length: expected a number"},
      {Get("Content-Length:\r\n"), "Content-Length: expected a number"},
      {Get("Content-Length: 1234567890123456789\r\n"), "Content-Length: expected a number"},
      {Get("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"), "got both"},
      {Get("Transfer-Encoding: chunked\r\nContent-Length: 1\r\n"), "got both"},
      {Get("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), "got more"},
      {Get("Transfer-Encoding: gzip, chunked\r\n"), "expected chunked alone"},
      {Get("Transfer-Encoding: identity\r\n"), "expected chunked alone"},
      {Get("Transfer-Encoding: \x0b"
           "chunked\r\n"),
       "expected chunked alone"},
      {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "none of HTTP/1.0"},
      {Get("Host: a\r\nHOST: a\r\n"), "Host: expected one"},
      {Get("Content-Length : 1\r\n"), "white space before a colon"},
      {Get("A\t: 1\r\n"), "white space before a colon"},
      {Get("Content-Length x: 1\r\n"), "a name has"},
      {Get("Content\x01Length: 1\r\n"), "a name has"},
      {Get("A\xc3\xa4: b\r\n"), "a name has"},
      {Get("A: b\r\n c\r\n"), "goes on in the next"},
      {Get("A: b\r\n\tc\r\n"), "goes on in the next"},
      {Get("A: b\rB: c\r\n"), "CR and LF"},
      {Get("A: b\nB: c\r\n"), "CR and LF"},
      {Get("A: b\r\r\n"), "CR and LF"},
      {Get(std::string_view("A: \0\r\n", 6)), "no NUL"},
      {Get(": b\r\n"), "expected name: value"},
      {Get("nothing\r\n"), "expected name: value"},
      {"\r\n" + Get("Content-Length: 1\r\nContent-Length: 2\r\n"), "expected a method"},
      {"\r\n", "expected a method"},
      {"GET /\r\n\r\n", "expected a method"},
      {"GET  HTTP/1.1\r\n\r\n", "target"},
      {"GET a HTTP/1.1\r\n\r\n", "target"},
      {"GET http://b/ HTTP/1.1\r\n\r\n", "target"},
      {"OPTIONS * HTTP/1.1\r\n\r\n", "target"},
      {"GET /a b HTTP/1.1\r\n\r\n", "target"},
      {"GET /\x7f HTTP/1.1\r\n\r\n", "target"},
      {"GET /\xc3\xa4 HTTP/1.1\r\n\r\n", "target"},
  };
  for (const auto& [head, said] : heads) {
    const absl::Status status = CheckHead(head);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << head;
    EXPECT_THAT(std::string(status.message()), HasSubstr(said)) << head;
  }
}

}  // namespace
}  // namespace pagefuse::serve
