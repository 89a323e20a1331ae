// SPDX-License-Identifier: Apache-2.0
// What answers requests of one model, whoever brings them: the server from the network, a batch from a file.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"

#include "pagefuse/serve/api.h"
#include "pagefuse/serve/engine_thread.h"
#include "pagefuse/serve/generation.h"
#include "pagefuse/serve/http.h"
#include "pagefuse/serve/limits.h"
#include "pagefuse/serve/log.h"
#include "pagefuse/serve/metrics.h"
#include "pagefuse/serve/routes.h"
#include "pagefuse/serve/served_model.h"
#include "pagefuse/serve/trace.h"
#include "pagefuse/serve/workers.h"

namespace pagefuse::serve {

struct ServiceOptions {
  Limits limits = {};
  bool strict = false;       // unknown parameters are errors
  bool log_prompts = false;  // prompts stand in the log
  std::string metrics_prefix = "pagefuse:";
  int workers = 2;
  Trace* trace = nullptr;  // what is done is written there
};

// Thread-safe. All replies must have ended, or their clients left, before it ends.
class Service {
 public:
  Service(ServedModel model, const ServiceOptions& options, Log* log);
  ~Service();

  // By a worker; `route` has somebody who serves it. What cannot be answered is refused in the reply.
  void Answer(const Route& route, HttpRequest request, std::shared_ptr<HttpReply> reply);
  // Refuses in the reply, and counts it.
  void Refuse(const absl::Status& error, ErrorShape shape, HttpReply& reply);
  void CountRefusal(int http) { metrics_.AddRefused(http); }
  // The engine forgets the texts it knows, by a worker, and then `done` is called.
  void ForgetTexts(std::function<void()> done);

  const ServedModel& model() const { return model_; }
  Generations& generations() { return generations_; }
  std::string PrintMetrics() const;

 private:
  void OnStep(const StepTimes& times, const EngineState& state);

  // In the order in which they begin; what is used ends after who uses it.
  ServedModel model_;
  Log* log_;
  Metrics metrics_;
  Trace* trace_;
  int64_t preemptions_ = 0;  // by the thread of the engine
  Workers workers_;
  EngineThread engine_;
  Generations generations_;
  Api api_;
};

// The refusal as the reply, and in the log.
void SendRefusal(const absl::Status& error, ErrorShape shape, Log& log, HttpReply& reply);

}  // namespace pagefuse::serve
