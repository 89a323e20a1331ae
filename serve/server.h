// SPDX-License-Identifier: Apache-2.0
// `pagefuse serve`: a model behind the APIs that people's clients speak.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/serve/http.h"
#include "pagefuse/serve/limits.h"
#include "pagefuse/serve/log.h"
#include "pagefuse/serve/served_model.h"
#include "pagefuse/serve/trace.h"

namespace pagefuse::serve {

struct ServeOptions {
  std::string host = "127.0.0.1";
  int port = 8080;  // 0: one that is free
  Limits limits = {};
  std::vector<std::string> keys = {};           // one of them is asked for, if there are any
  std::vector<std::string> allowed_hosts = {};  // besides loopback and `host`
  std::string cors_origin = {};                 // pages from there may call; empty: none
  bool strict = false;                          // unknown parameters are errors
  bool page = true;                             // a page at /
  bool log_prompts = false;
  std::string metrics_prefix = "pagefuse:";
  int workers = 2;
  Trace* trace = nullptr;  // must outlive the server
};

// Listens at once; all but /health, /version and the page is 503 until it has a model. Thread-safe.
class Server {
 public:
  // InvalidArgument naming what cannot be listened at.
  static absl::StatusOr<std::unique_ptr<Server>> Listen(const ServeOptions& options, Log* log);
  ~Server();

  // Serves it from now on; called once.
  void Serve(ServedModel model);
  int port() const;
  // No new requests; those that run end by themselves within Limits::drain, or then as cancelled. Returns when
  // all are told; `hurry` is asked meanwhile, and ends the wait.
  void Drain(const std::function<bool()>& hurry);

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace pagefuse::serve
