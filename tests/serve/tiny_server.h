// SPDX-License-Identifier: Apache-2.0
// A server over the tiny decoder of tests/runtime, whose steps a test can stop or fail.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"

#include "pagefuse/serve/server.h"

namespace pagefuse::serve {

using TestJson = nlohmann::ordered_json;

// What steps do; by any thread.
class StepGate {
 public:
  // Steps wait behind themselves from now on, until they are let through.
  void Close();
  void Open();
  // Of those that run then.
  void FailNext(int steps) { failing_ = steps; }
  absl::Status Pass();
  // A step waits.
  bool waits();

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool closed_ = false, waits_ = false;
  std::atomic<int> failing_ = 0;
};

struct TinyReply {
  int status = 0;
  Headers headers;
  std::string text;
  TestJson json;  // of a whole reply
  std::vector<TestJson> events;
  bool done = false;  // "[DONE]"
};

class TinyServer {
 public:
  explicit TinyServer(ServeOptions options = {}, EngineOptions engine = {});
  ~TinyServer();

  int port() const { return server_->port(); }
  Server& server() { return *server_; }
  StepGate& gate() { return gate_; }
  std::string log();

  TinyReply Post(const std::string& path, const TestJson& body);
  TinyReply Get(const std::string& path);
  // Of the model's own metrics: "pages", `,state="held"`.
  double Metric(const std::string& name, const std::string& labels = "");
  // Waits until nobody is answered and no page is held.
  bool BecomesIdle();

 private:
  TinyReply Call(const std::string& path, const std::string& body);

  StepGate gate_;
  std::mutex mutex_;
  std::string text_;
  Log log_;
  std::unique_ptr<Server> server_;
};

// A decoder as the server has it, for what it answers alone.
std::unique_ptr<Decoder> TinyEngine(EngineOptions options = {});

}  // namespace pagefuse::serve
