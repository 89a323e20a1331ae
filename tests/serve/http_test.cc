// SPDX-License-Identifier: Apache-2.0
// Requests and replies over loopback, by bytes that clients send in order and out of it.
#include "pagefuse/serve/http.h"

#include <atomic>
#include <map>
#include <mutex>

#include "must.h"
#include "raw_client.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/base/str_cat.h"

namespace pagefuse::serve {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A server that says what was asked. /hold/... keeps the reply; /lose drops it; /begin too, in the middle.
class HttpServerTest : public ::testing::Test {
 protected:
  void Listen(Limits limits = {}) {
    server_ =
        Must(HttpServer::Listen({.port = 0, .limits = limits},
                                [this](HttpRequest request, std::shared_ptr<HttpReply> reply) {
                                  Answer(std::move(request), std::move(reply));
                                }));
  }
  void Answer(HttpRequest request, std::shared_ptr<HttpReply> reply) {
    if (request.path.starts_with("/hold")) {
      reply->OnGone([this] { ++gone_; });
      const std::lock_guard lock(mutex_);
      held_[request.path] = std::move(reply);
    } else if (request.path == "/begin") {
      reply->Begin(200, {{"Content-Type", "text/plain"}}, "");
      reply->Write("half");
    } else if (request.path != "/lose") {
      reply->Send(200, {{"X-Type", std::string(request.Header("content-type"))}},
                  StrCat(request.method, " ", request.path, " ", request.query, " ", request.body));
    }
  }
  std::shared_ptr<HttpReply> Held(const std::string& path = "/hold") {
    std::shared_ptr<HttpReply> reply;
    EXPECT_TRUE(Becomes([&] {
      const std::lock_guard lock(mutex_);
      reply = held_[path];
      return reply != nullptr;
    })) << path;
    return reply;
  }
  int port() const { return server_->port(); }

  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<HttpReply>> held_;
  std::atomic<int> gone_ = 0;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, OneConnectionTakesRequestAfterRequest) {
  Listen();
  RawClient client(port());
  for (int i = 0; i < 3; ++i) {
    client.Post(StrCat("/a?b=", i), "body");
    const RawReply reply = client.Read();
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.body, StrCat("POST /a b=", i, " body"));
    EXPECT_THAT(reply.head, HasSubstr("Connection: keep-alive"));
  }
  client.Get("/last", "Connection: close\r\n");
  EXPECT_EQ(client.Read().body, "GET /last  ");
  EXPECT_EQ(client.ReadAll(), "");
  EXPECT_TRUE(Becomes([this] { return server_->connections() == 0; }));
}

TEST_F(HttpServerTest, RequestsThatComeTogetherAreAnsweredInOrder) {
  Listen();
  RawClient client(port());
  std::string all;
  for (int i = 0; i < 5; ++i) {
    all += StrCat("POST /", i, " HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n", i);
  }
  client.Send(all);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(client.Read().body, StrCat("POST /", i, "  ", i));
  // One that waits holds up those behind it.
  client.Get("/hold");
  client.Get("/next");
  Held()->Send(200, {}, "first");
  EXPECT_EQ(client.Read().body, "first");
  EXPECT_EQ(client.Read().body, "GET /next  ");
  EXPECT_EQ(gone_, 0);
}

TEST_F(HttpServerTest, ChunksAreTheBodyAndFieldsBehindThemAreNone) {
  Listen();
  RawClient client(port());
  client.Send(
      "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nabcde\r\n");
  client.Send("A\r\n0123456789\r\n0\r\nContent-Type: evil\r\n\r\n");
  const RawReply reply = client.Read();
  EXPECT_EQ(reply.body, "POST /a  abcde0123456789");
  EXPECT_THAT(reply.head, HasSubstr("X-Type: \r\n"));
}

TEST_F(HttpServerTest, WhoAsksWhetherToGoOnIsToldSoEachTime) {
  Listen();
  RawClient client(port());
  for (int i = 0; i < 3; ++i) {
    client.Send("POST /a HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
    EXPECT_EQ(client.ReadTo("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
    client.Send("bo");
    std::this_thread::sleep_for(milliseconds(5));
    client.Send("dy");
    EXPECT_EQ(client.Read().body, "POST /a  body") << i;
  }
}

TEST_F(HttpServerTest, AHeadOfAReplyHasNoBody) {
  Listen();
  RawClient client(port());
  client.Send("HEAD /a HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_THAT(client.Read(true).head, HasSubstr("Content-Length: 9\r\n"));
  client.Get("/b");
  EXPECT_EQ(client.Read().body, "GET /b  ");
}

TEST_F(HttpServerTest, WhatIsTooLargeOrBrokenEndsTheConnection) {
  Listen({.body_bytes = 100, .header_bytes = 300, .target_bytes = 50});
  const std::string host = "Host: a\r\n", x(400, 'x');
  const std::pair<std::string, int> requests[] = {
      {StrCat("POST /a HTTP/1.1\r\n", host, "Content-Length: 101\r\n\r\n"), 413},
      {StrCat("POST /a HTTP/1.1\r\n", host, "Transfer-Encoding: chunked\r\n\r\n65\r\n", x), 413},
      {StrCat("POST /a HTTP/1.1\r\n", host,
              "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n"),
       413},
      {StrCat("GET /a HTTP/1.1\r\n", host, "X: ", x, "\r\n\r\n"), 431},
      {StrCat("GET /a HTTP/1.1\r\n", host, "X: ", x), 431},
      {StrCat("GET /", x.substr(0, 50), " HTTP/1.1\r\n", host, "\r\n"), 414},
      {"GET /a HTTP/1.1\r\n\r\n", 400},
      {StrCat("GET /a HTTP/1.1\r\n", host, host, "\r\n"), 400},
      {StrCat("GET /a HTTP/3.1\r\n", host, "\r\n"), 400},
      {StrCat("\r\nGET /a HTTP/1.1\r\n", host, "\r\n"), 400},
      {StrCat("POST /a HTTP/1.1\r\n", host, "Transfer-Encoding: chunked\r\n\r\nx\r\n"), 400},
  };
  for (const auto& [bytes, status] : requests) {
    RawClient client(port());
    client.Send(bytes + "GET /smuggled HTTP/1.1\r\n" + host + "\r\n");
    const RawReply reply = client.Read();
    EXPECT_EQ(reply.status, status) << bytes;
    EXPECT_THAT(reply.body, StartsWith("{\"error\":")) << bytes;
    EXPECT_THAT(reply.head, HasSubstr("Connection: close"));
    EXPECT_EQ(client.ReadAll(), "") << bytes;
  }
  RawClient client(port());
  client.Post("/a", std::string(100, 'b'));
  EXPECT_EQ(client.Read().status, 200);
}

TEST_F(HttpServerTest, WhoIsSlowIsTold) {
  Listen({.header = milliseconds(60), .body = milliseconds(60), .idle = milliseconds(60)});
  RawClient header(port()), body(port()), idle(port()), later(port());
  header.Send("GET /a HTTP/1.1\r\nHost: ");
  body.Send("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc");
  later.Get("/a");
  EXPECT_EQ(later.Read().status, 200);
  EXPECT_EQ(header.Read().status, 408);
  EXPECT_EQ(header.ReadAll(), "");
  EXPECT_EQ(body.Read().status, 408);
  EXPECT_EQ(body.ReadAll(), "");
  EXPECT_EQ(idle.ReadAll(), "");  // nobody asked
  EXPECT_EQ(later.ReadAll(), "");
  // An answer may take its time.
  RawClient patient(port());
  patient.Get("/hold");
  const auto reply = Held();
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_EQ(gone_, 0);
  reply->Send(200, {}, "late");
  EXPECT_EQ(patient.Read().body, "late");
}

TEST_F(HttpServerTest, PiecesComeAsTheyAreWritten) {
  Listen();
  RawClient client(port());
  client.Get("/hold");
  const auto reply = Held();
  reply->Begin(200, {{"Content-Type", "text/plain"}}, "");
  reply->Write("one");
  EXPECT_THAT(client.ReadTo("3\r\none\r\n"), HasSubstr("Transfer-Encoding: chunked"));
  reply->Write("");  // which would end it
  reply->Write("two");
  EXPECT_EQ(client.ReadTo("\r\ntwo\r\n"), "3\r\ntwo\r\n");
  reply->End();
  reply->Write("three");  // dropped, as a second end is
  reply->End();
  EXPECT_EQ(client.ReadTo("0\r\n\r\n"), "0\r\n\r\n");
  client.Get("/next");
  EXPECT_EQ(client.Read().body, "GET /next  ");
}

TEST_F(HttpServerTest, PiecesOfOldClientsEndWithTheConnection) {
  Listen();
  RawClient client(port());
  client.Send("GET /hold HTTP/1.0\r\n\r\n");
  const auto reply = Held();
  reply->Begin(200, {}, "");
  reply->Write("one");
  reply->Write("two");
  reply->End();
  const std::string all = client.ReadAll();
  EXPECT_THAT(all, ::testing::EndsWith("\r\n\r\nonetwo"));
  EXPECT_THAT(all, Not(HasSubstr("chunked")));
}

TEST_F(HttpServerTest, AQuietStreamHasPings) {
  Listen({.ping = milliseconds(20)});
  RawClient client(port());
  client.Get("/hold");
  const auto reply = Held();
  reply->Begin(200, {}, ": ping\n\n");
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(client.ReadTo(": ping\n\n\r\n"), HasSubstr("8\r\n: ping\n\n\r\n"));
  }
  reply->End();
  EXPECT_THAT(client.ReadTo("0\r\n\r\n"), ::testing::EndsWith("0\r\n\r\n"));
}

TEST_F(HttpServerTest, AClientThatLeavesIsTold) {
  Listen();
  const auto leaves = [](RawClient& client, int how) {
    if (how == 0) client.Leave();
    if (how == 1) client.Reset();
    if (how == 2) client.EndWriting();
  };
  int expected = 0;
  for (const bool streams : {false, true}) {
    for (int how = 0; how < 3; ++how) {
      const std::string path = StrCat("/hold/", streams, how);
      RawClient client(port());
      client.Get(path);
      const auto reply = Held(path);
      if (streams) {
        reply->Begin(200, {}, "");
        reply->Write("piece");
        client.ReadTo("piece");
      }
      leaves(client, how);
      ++expected;
      EXPECT_TRUE(Becomes([&] { return gone_ == expected; })) << path;
      // Who asks later is told at once, and what is written is dropped.
      std::atomic<bool> told = false;
      reply->OnGone([&] { told = true; });
      reply->Write("more");
      reply->End();
      EXPECT_TRUE(Becomes([&] { return told.load(); })) << path;
    }
  }
  EXPECT_TRUE(Becomes([this] { return server_->connections() == 0; }));
  EXPECT_EQ(gone_, expected);
}

TEST_F(HttpServerTest, AStreamThatNobodyReadsIsEnded) {
  Listen({.unread_bytes = 100'000});
  RawClient client(port());
  client.Get("/hold");
  const auto reply = Held();
  reply->Begin(200, {}, "");
  // More than the system keeps between the two.
  for (int i = 0; i < 2000 && gone_ == 0; ++i) reply->Write(std::string(10'000, 'x'));
  EXPECT_TRUE(Becomes([this] { return gone_ == 1; }));
  EXPECT_TRUE(Becomes([this] { return server_->connections() == 0; }));
}

TEST_F(HttpServerTest, AReplyThatNobodyReadsIsEndedWhenItStandsStill) {
  Listen({.stall = milliseconds(100)});
  RawClient client(port());
  client.Get("/hold");
  Held()->Send(200, {}, std::string(50'000'000, 'x'));
  EXPECT_TRUE(Becomes([this] { return server_->connections() == 0; }));
}

TEST_F(HttpServerTest, ALostReplyIsNeverTakenForAWholeOne) {
  Listen();
  RawClient client(port());
  client.Get("/lose");
  EXPECT_EQ(client.Read().status, 500);
  client.Get("/begin");
  const RawReply half = client.Read();
  EXPECT_EQ(half.status, 200);
  EXPECT_EQ(half.body, "half");
  EXPECT_FALSE(half.whole);
}

TEST_F(HttpServerTest, ConnectionsBeyondTheLimitAreTold) {
  Listen({.connections = 3});
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<RawClient>(port()));
    clients.back()->Get("/a");
    EXPECT_EQ(clients.back()->Read().status, 200);
  }
  RawClient more(port());
  EXPECT_EQ(more.Read().status, 503);
  EXPECT_EQ(more.ReadAll(), "");
  clients.clear();
  EXPECT_TRUE(Becomes([this] { return server_->connections() == 0; }));
  RawClient again(port());
  again.Get("/a");
  EXPECT_EQ(again.Read().status, 200);
}

TEST_F(HttpServerTest, ClosingLetsRepliesEnd) {
  Listen();
  RawClient busy(port()), idle(port());
  idle.Get("/a");
  EXPECT_EQ(idle.Read().status, 200);
  busy.Get("/hold");
  const auto reply = Held();
  server_->Close();
  EXPECT_EQ(idle.ReadAll(), "");
  reply->Send(200, {}, "last");
  EXPECT_EQ(busy.Read().body, "last");
  EXPECT_EQ(busy.ReadAll(), "");
  EXPECT_TRUE(Becomes([this] { return server_->connections() == 0; }));
}

TEST_F(HttpServerTest, RepliesMayOutliveTheServer) {
  Listen();
  RawClient client(port());
  client.Get("/hold");
  const auto reply = Held();
  server_->Stop();
  EXPECT_EQ(client.ReadAll(), "");
  reply->Send(200, {}, "too late");
  std::atomic<bool> told = false;
  reply->OnGone([&told] { told = true; });
  server_.reset();
  reply->Begin(200, {}, "");
  EXPECT_FALSE(told);  // whom it would tell may have ended
  held_.clear();
}

TEST(HttpServer, AddressesThatCannotBeHadAreNamed) {
  const auto handler = [](HttpRequest, const std::shared_ptr<HttpReply>&) {};
  const auto first = Must(HttpServer::Listen({.port = 0}, handler));
  const absl::Status taken = HttpServer::Listen({.port = first->port()}, handler).status();
  EXPECT_TRUE(absl::IsInvalidArgument(taken));
  EXPECT_THAT(std::string(taken.message()),
              HasSubstr(StrCat("127.0.0.1 port ", first->port(), ": ")));
  EXPECT_FALSE(HttpServer::Listen({.host = "not an address", .port = 0}, handler).ok());
}

TEST_F(HttpServerTest, ACallGetsWhatTheServerSays) {
  Listen();
  const std::string url = StrCat("http://127.0.0.1:", port());
  std::string body;
  const auto add = [&body](std::string_view piece) {
    body += piece;
    return true;
  };
  const HttpAnswer answer = Must(HttpCall(url + "/a?b", {{"Content-Type", "x"}}, "text", add));
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(body, "POST /a b text");
  EXPECT_THAT(answer.headers, ::testing::Contains(::testing::Pair("x-type", "x")));
  // A reader that has enough leaves.
  std::thread writer([this] {
    const auto reply = Held("/hold/call");
    reply->Begin(200, {}, "");
    while (gone_ == 0) reply->Write("x");
  });
  EXPECT_TRUE(HttpCall(url + "/hold/call", {}, "", [](std::string_view) { return false; }).ok());
  writer.join();
  server_.reset();
  const absl::Status nobody = HttpCall(url, {}, "", add).status();
  EXPECT_TRUE(absl::IsUnavailable(nobody)) << nobody;
  EXPECT_TRUE(absl::IsInvalidArgument(HttpCall("ftp://a", {}, "", add).status()));
}

}  // namespace
}  // namespace pagefuse::serve
