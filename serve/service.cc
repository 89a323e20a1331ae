// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/serve/service.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/serve/http_error.h"

namespace pagefuse::serve {
namespace {

std::map<std::string, std::string> CacheFacts(const Decoder& decoder) {
  if (decoder.engine() == nullptr) return {};
  const EngineStats stats = decoder.stats();
  return {{"kv_cache", decoder.engine()->cache_settings().format},
          {"page_bytes", StrCat(stats.bytes_per_page)},
          {"hit_unit", StrCat(stats.hit_unit)},
          {"num_pages", StrCat(decoder.engine()->cache().pool().num_pages())}};
}

}  // namespace

Service::Service(ServedModel model, const ServiceOptions& options, Log* log)
    : model_(std::move(model)),
      log_(log),
      metrics_(options.metrics_prefix, model_.name),
      trace_(options.trace),
      workers_(options.workers),
      engine_(model_.decoder.get(),
              [this](const StepTimes& times, const EngineState& state) { OnStep(times, state); }),
      generations_(&engine_, &workers_, &model_, &metrics_, log,
                   {options.limits, options.log_prompts, options.trace}),
      api_{&model_, &generations_, log, options.strict} {
  metrics_.SetCacheInfo(CacheFacts(*model_.decoder));
}

// Requests that a worker has not looked at yet are refused while there is somebody to refuse them.
Service::~Service() {
  generations_.Drain();
  workers_.Finish();
}

void Service::OnStep(const StepTimes& times, const EngineState& state) {
  metrics_.AddStep(times, state);
  const int64_t before = std::exchange(preemptions_, state.stats.preemptions);
  if (before < preemptions_) {
    log_->Add("preempted", {{"requests", preemptions_ - before},
                            {"pages_held", state.pages_held},
                            {"running", state.running},
                            {"waiting", state.waiting}});
  }
  if (trace_ == nullptr) return;
  trace_->AddStep(times.start, times.seconds,
                  {{"tokens", times.tokens},
                   {"running", state.running},
                   {"waiting", state.waiting},
                   {"pages_held", state.pages_held},
                   {"pages_kept", state.pages_kept},
                   {"rereads", times.rereads}});
  const auto after = [&](double seconds) {
    return times.start + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                             std::chrono::duration<double>(seconds));
  };
  // What else there is lies between them.
  trace_->AddPart("plan", times.start, times.plan_seconds);
  trace_->AddPart("run", after(times.seconds - times.sample_seconds - times.run_seconds),
                  times.run_seconds);
  trace_->AddPart("sample", after(times.seconds - times.sample_seconds), times.sample_seconds);
}

void Service::Answer(const Route& route, HttpRequest request, std::shared_ptr<HttpReply> reply) {
  const ErrorShape shape = ErrorShapeAt(request.path);
  workers_.Post(
      [this, serve = route.serve, call = Call{&api_, std::move(request), std::move(reply), shape}] {
        const absl::Status status = serve(call);
        if (!status.ok()) Refuse(status, call.error_reply, *call.reply);
      });
}

void Service::Refuse(const absl::Status& error, ErrorShape shape, HttpReply& reply) {
  metrics_.AddRefused(HttpOf(error));
  SendRefusal(error, shape, *log_, reply);
}

void Service::ForgetTexts(std::function<void()> done) {
  // The engine may be in a step, for which the worker waits.
  workers_.Post([this, done = std::move(done)] {
    engine_.ForgetTexts();
    done();
  });
}

std::string Service::PrintMetrics() const {
  const int64_t waiting = generations_.waiting();
  return metrics_.Print(engine_.state(), std::max<int64_t>(generations_.active() - waiting, 0),
                        waiting);
}

void SendRefusal(const absl::Status& error, ErrorShape shape, Log& log, HttpReply& reply) {
  ErrorReply made = shape(error);
  log.Add("refused", {{"status", made.status}, {"param", ParamOf(error)}});
  reply.Send(made.status, std::move(made.headers), std::move(made.body));
}

}  // namespace pagefuse::serve
