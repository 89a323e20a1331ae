// SPDX-License-Identifier: Apache-2.0
// A connection of the server. A part of http.cc.
#pragma once

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>

#include "absl/strings/match.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/serve/http.h"
#include "pagefuse/serve/http_boost-inl.h"
#include "pagefuse/serve/http_error.h"
#include "pagefuse/serve/http_head.h"

namespace pagefuse::serve {
namespace {

std::string HeadText(int status, const Headers& headers) {
  std::string text = StrCat("HTTP/1.1 ", status, " ", ReasonOf(status), "\r\n");
  for (const auto& [name, value] : headers) StrAppend(&text, name, ": ", value, "\r\n");
  return text + "\r\n";
}

class Connection;

struct Shared {
  HttpOptions options;
  HttpHandler handler;
  asio::io_context io{1};
  std::unordered_set<Connection*> open;  // by the thread of the network
  std::atomic<int64_t> count = 0;
  bool closing = false;
  bool stopped = false;  // nobody is called any more
};

// Reads requests one after the other. While one is answered, it reads on: so a client that has left is
// seen. All of it runs in the thread of the network, but for Reply.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<Shared> shared, tcp::socket socket)
      : shared_(std::move(shared)),
        socket_(std::move(socket)),
        timer_(shared_->io),
        ping_timer_(shared_->io) {
    shared_->open.insert(this);
    ++shared_->count;
  }
  ~Connection() { Uncount(); }

  void Start() {
    Error ignored;
    socket_.set_option(tcp::no_delay(true), ignored);
    WaitForRequest();
  }
  // For one too many.
  void Refuse(int status, std::string_view message) { SendError(status, message); }
  void CloseIfIdle() {
    if (state_ == State::kHead && pending_.empty() && writing_.empty()) Abort();
    keep_alive_ = false;
  }
  void Abort() {
    if (state_ == State::kClosed) return;
    state_ = State::kClosed;
    Uncount();
    on_gone_ = nullptr;
    timer_.cancel();
    ping_timer_.cancel();
    Error ignored;
    socket_.close(ignored);
  }

 private:
  class Reply;
  enum class State { kHead, kBody, kReply, kClosed };

  // Once it is closed; those who answer may keep it for a while.
  void Uncount() {
    if (shared_->open.erase(this) > 0) --shared_->count;
  }
  const Limits& limits() const { return shared_->options.limits; }

  // A deadline of the phase; the one before it is no more.
  void SetDeadline(Clock::duration wait) {
    timer_.expires_after(wait);
    timer_.async_wait([self = shared_from_this(), number = ++deadline_](const Error& error) {
      if (!error && self->deadline_ == number) self->OnDeadline();
    });
  }
  // One that has passed, and is not told yet, counts no more either.
  void DropDeadline() {
    ++deadline_;
    timer_.cancel();
  }
  void OnDeadline() {
    if (state_ == State::kHead && !buffer_.size()) return Abort();
    if (state_ == State::kHead || state_ == State::kBody) {
      return SendError(408, "the request did not come in time");
    }
    Gone();
  }

  void WaitForRequest() {
    state_ = State::kHead;
    scanned_ = 0;
    head_began_ = false;
    if (shared_->closing) return Abort();
    SetDeadline(limits().idle);
    if (buffer_.size() > 0) return TakeHead();
    Read();
  }

  // One at a time, and not into the buffer, of which requests are taken meanwhile.
  void Read() {
    if (reading_ || state_ == State::kClosed) return;
    constexpr size_t kMostAhead = 65536;
    if (buffer_.size() >= kMostAhead) return Gone();  // requests that nobody waits for
    reading_ = true;
    socket_.async_read_some(asio::buffer(piece_),
                            [self = shared_from_this()](const Error& error, size_t bytes) {
                              self->reading_ = false;
                              self->OnRead(error, bytes);
                            });
  }

  void OnRead(const Error& error, size_t bytes) {
    if (state_ == State::kClosed) return;
    if (error) return Gone();
    if (shut_) return Read();
    buffer_.commit(asio::buffer_copy(buffer_.prepare(bytes), asio::buffer(piece_, bytes)));
    if (state_ == State::kHead) return TakeHead();
    if (state_ == State::kBody) return TakeBody();
    Read();
  }

  std::string_view Buffered() const {
    return {static_cast<const char*>(buffer_.data().data()), buffer_.size()};
  }

  void TakeHead() {
    if (!std::exchange(head_began_, true)) SetDeadline(limits().header);
    constexpr std::string_view kEnd = "\r\n\r\n";
    const size_t from = scanned_ < kEnd.size() ? 0 : scanned_ - kEnd.size();
    const size_t end = Buffered().find(kEnd, from);
    scanned_ = buffer_.size();
    if (end == std::string_view::npos) {
      if (buffer_.size() > limits().header_bytes) return SendError(431, "the header is too long");
      return Read();
    }
    const std::string_view head = Buffered().substr(0, end + kEnd.size());
    if (head.size() > limits().header_bytes) return SendError(431, "the header is too long");
    const absl::Status checked = CheckHead(head);
    if (!checked.ok()) return SendError(400, StdView(checked.message()));
    ParseHead(head.size());
  }

  void ParseHead(size_t size) {
    parser_.emplace();
    parser_->eager(true);
    parser_->header_limit(static_cast<uint32_t>(2 * limits().header_bytes));
    parser_->body_limit(limits().body_bytes);
    Error error;
    const size_t taken = parser_->put(asio::buffer(buffer_.data(), size), error);
    if (error == http::error::body_limit) return SendError(413, "the body is too long");
    if (!parser_->is_header_done()) {
      return SendError(400, StrCat("header: ", error.message()));
    }
    buffer_.consume(taken);
    const auto& message = parser_->get();
    keep_alive_ = message.keep_alive() && !shared_->closing;
    version_ = message.version();
    is_head_ = message.method() == http::verb::head;
    if (version_ != 10 && version_ != 11) return SendError(505, "expected HTTP/1.1");
    if (version_ == 11 && message.count(http::field::host) == 0) {
      return SendError(400, "header: Host: expected one, got none");
    }
    if (message.target().size() > limits().target_bytes) {
      return SendError(414, "the target is too long");
    }
    KeepHead();
    ReadBody();
  }

  // Before the body is read: the parser would put fields that stand behind it to those of the head.
  void KeepHead() {
    const auto& message = parser_->get();
    head_ = {};
    head_.method = std::string(View(message.method_string()));
    const std::string_view target = View(message.target());
    const size_t question = target.find('?');
    head_.path = std::string(target.substr(0, question));
    if (question != std::string_view::npos) head_.query = std::string(target.substr(question + 1));
    for (const auto& field : message) {
      head_.headers.emplace_back(Lowered(View(field.name_string())),
                                 std::string(View(field.value())));
    }
  }

  void ReadBody() {
    if (parser_->is_done()) return Dispatch();
    state_ = State::kBody;
    SetDeadline(limits().body);
    if (Lowered(View(parser_->get()[http::field::expect])) == "100-continue") {
      Queue("HTTP/1.1 100 Continue\r\n\r\n");
    }
    TakeBody();
  }

  // What has come of it.
  void TakeBody() {
    Error error;
    for (size_t taken = 1; taken > 0 && !error && !parser_->is_done() && buffer_.size() > 0;) {
      taken = parser_->put(buffer_.data(), error);
      buffer_.consume(taken);
    }
    if (error == http::error::body_limit) return SendError(413, "the body is too long");
    if (error && error != http::error::need_more) {
      return SendError(400, StrCat("body: ", error.message()));
    }
    if (parser_->is_done()) return Dispatch();
    // Of lines between chunks, which the parser takes whole.
    if (buffer_.size() > limits().header_bytes) return SendError(413, "the body is too long");
    Read();
  }

  void Dispatch();

  // What is to be written, in order.
  void Queue(std::string text) {
    if (state_ == State::kClosed) return;
    pending_ += text;
    WriteSome();
  }
  void WriteSome() {
    if (!writing_.empty() || pending_.empty() || state_ == State::kClosed) return;
    writing_.swap(pending_);
    written_ = 0;
    if (state_ == State::kReply) SetDeadline(limits().stall);
    WriteRest();
  }
  void WriteRest() {
    socket_.async_write_some(asio::buffer(writing_.data() + written_, writing_.size() - written_),
                             [self = shared_from_this()](const Error& error, size_t bytes) {
                               self->OnWritten(error, bytes);
                             });
  }
  void OnWritten(const Error& error, size_t bytes) {
    if (state_ == State::kClosed) return;
    if (error) return Gone();
    written_ += bytes;
    if (state_ == State::kReply) SetDeadline(limits().stall);
    if (written_ < writing_.size()) return WriteRest();
    writing_.clear();
    written_ = 0;
    if (!pending_.empty()) return WriteSome();
    if (state_ == State::kReply && !ended_) DropDeadline();  // the answer may take its time
    FinishIfDone();
  }
  void FinishIfDone() {
    if (state_ != State::kReply || !ended_ || !pending_.empty() || !writing_.empty()) return;
    if (!keep_alive_) return Shut();
    WaitForRequest();
  }

  // Of the request that is answered now.
  bool IsCurrent(uint64_t request) const {
    return state_ == State::kReply && request == request_ && !ended_;
  }
  Headers Completed(Headers headers) const {
    const Headers& more = shared_->options.headers;
    headers.insert(headers.end(), more.begin(), more.end());
    headers.emplace_back("Connection", keep_alive_ ? "keep-alive" : "close");
    return headers;
  }
  void SendWhole(int status, Headers headers, const std::string& body) {
    constexpr int kNoContent = 204;
    if (status != kNoContent) headers.emplace_back("Content-Length", StrCat(body.size()));
    ended_ = true;
    std::string text = HeadText(status, Completed(std::move(headers)));
    Queue(is_head_ ? std::move(text) : std::move(text) + body);
  }
  void BeginPieces(int status, Headers headers, const std::string& ping) {
    begun_ = true;
    chunked_ = version_ == 11;
    if (chunked_) headers.emplace_back("Transfer-Encoding", "chunked");
    if (!chunked_) keep_alive_ = false;
    Queue(HeadText(status, Completed(std::move(headers))));
    last_piece_ = Clock::now();
    if (!ping.empty()) PingLater(ping);
  }
  // Each piece that is written puts it off.
  void PingLater(const std::string& ping) {
    ping_timer_.expires_at(last_piece_ + limits().ping);
    ping_timer_.async_wait(
        [self = shared_from_this(), ping, request = request_](const Error& error) {
          if (error || !self->IsCurrent(request)) return;
          if (Clock::now() >= self->last_piece_ + self->limits().ping) self->WritePiece(ping);
          self->PingLater(ping);
        });
  }
  void WritePiece(std::string piece) {
    if (piece.empty() || is_head_) return;
    last_piece_ = Clock::now();
    if (pending_.size() + writing_.size() - written_ > limits().unread_bytes) return Gone();
    if (!chunked_) return Queue(std::move(piece));
    Queue(StrCat(absl::Hex(piece.size()), "\r\n", piece, "\r\n"));
  }
  // Nobody ends the reply: a client must not take half of one for a whole one.
  void Lose() {
    if (begun_) {
      keep_alive_ = false;
      ended_ = true;
      ping_timer_.cancel();
      return FinishIfDone();
    }
    const ErrorReply reply = ErrorOfHttp(500, "the request was lost");
    SendWhole(reply.status, reply.headers, reply.body);
  }
  void EndPieces() {
    ended_ = true;
    ping_timer_.cancel();
    if (chunked_ && !is_head_) return Queue("0\r\n\r\n");
    FinishIfDone();
  }

  // What cannot be read as a request: nothing behind it can be trusted.
  void SendError(int status, std::string_view message) {
    keep_alive_ = false;
    is_head_ = false;
    ended_ = false;
    ++request_;
    state_ = State::kReply;
    const ErrorReply reply = ErrorOfHttp(status, message);
    SendWhole(status, reply.headers, reply.body);
    const HttpOptions& options = shared_->options;
    if (options.on_refused && !shared_->stopped) options.on_refused(status);
  }

  void Gone() {
    const auto gone = std::exchange(on_gone_, nullptr);
    Abort();
    if (gone) gone();
  }
  // The end of what is sent; what the client still sends is read for a while, so that it is not told of a
  // reset before it has read the reply.
  void Shut() {
    on_gone_ = nullptr;
    Error ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
    constexpr std::chrono::milliseconds kLinger(500);
    state_ = State::kReply;
    shut_ = true;
    buffer_.clear();
    SetDeadline(kLinger);
    Read();
  }

  std::shared_ptr<Shared> shared_;
  tcp::socket socket_;
  asio::steady_timer timer_, ping_timer_;
  Clock::time_point last_piece_;
  static constexpr size_t kMostBuffered = size_t{1} << 17;
  beast::flat_buffer buffer_{kMostBuffered};
  std::array<char, 8192> piece_;
  std::optional<http::request_parser<http::string_body>> parser_;
  State state_ = State::kHead;
  size_t scanned_ = 0;
  bool head_began_ = false, reading_ = false, shut_ = false;
  bool keep_alive_ = true, is_head_ = false, chunked_ = false;
  bool begun_ = false, ended_ = false;  // of the reply
  unsigned version_ = 11;
  uint64_t request_ = 0, deadline_ = 0;
  HttpRequest head_;
  std::string pending_, writing_;
  size_t written_ = 0;
  std::function<void()> on_gone_;
};

class Connection::Reply final : public HttpReply {
 public:
  Reply(std::shared_ptr<Connection> connection, uint64_t request)
      : connection_(std::move(connection)), request_(request) {}
  // Nobody will answer any more.
  ~Reply() override {
    const auto shared = connection_->shared_;
    // A connection ends in the thread of the network.
    asio::post(shared->io, [c = std::move(connection_), request = request_] {
      if (c->IsCurrent(request)) c->Lose();
    });
  }
  void Send(int status, Headers headers, std::string body) override {
    Post([=, headers = std::move(headers), body = std::move(body)](Connection& c) {
      c.SendWhole(status, headers, body);
    });
  }
  void Begin(int status, Headers headers, std::string ping) override {
    Post([=, headers = std::move(headers), ping = std::move(ping)](Connection& c) {
      c.BeginPieces(status, headers, ping);
    });
  }
  void Write(std::string piece) override {
    Post([piece = std::move(piece)](Connection& c) { c.WritePiece(piece); });
  }
  void End() override {
    Post([](Connection& c) { c.EndPieces(); });
  }
  void OnGone(std::function<void()> gone) override {
    asio::post(connection_->shared_->io,
               [c = connection_, request = request_, gone = std::move(gone)] {
                 if (c->IsCurrent(request)) {
                   c->on_gone_ = gone;
                 } else if (c->state_ == State::kClosed && !c->shared_->stopped) {
                   gone();
                 }
               });
  }

 private:
  template <typename Call>
  void Post(Call call) {
    asio::post(connection_->shared_->io,
               [c = connection_, request = request_, call = std::move(call)] {
                 if (c->IsCurrent(request)) call(*c);
               });
  }

  std::shared_ptr<Connection> connection_;
  uint64_t request_;
};

void Connection::Dispatch() {
  HttpRequest request = std::exchange(head_, {});
  request.body = std::move(parser_->get().body());
  parser_.reset();
  state_ = State::kReply;
  ended_ = false;
  begun_ = false;
  on_gone_ = nullptr;
  DropDeadline();
  const uint64_t number = ++request_;
  Read();
  if (state_ == State::kClosed) return;
  shared_->handler(std::move(request), std::make_shared<Reply>(shared_from_this(), number));
}

}  // namespace
}  // namespace pagefuse::serve
