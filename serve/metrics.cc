// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/serve/metrics.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse::serve {
namespace {

std::vector<double> SecondsBounds() {
  return {0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25, 0.5,
          0.75,  1.0,    2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0};
}

std::vector<double> TokenBounds() {
  return {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
}

// As Prometheus writes label values.
std::string Escaped(std::string_view value) {
  std::string text;
  for (const char c : value) {
    if (c == '\\' || c == '"') text += '\\';
    text += c == '\n' ? ' ' : c;
  }
  return text;
}

std::string Number(double value) { return absl::StrFormat("%.17g", value); }

}  // namespace

Histogram::Histogram(std::vector<double> bounds)
    : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

void Histogram::Observe(double value) {
  const auto it = std::ranges::lower_bound(bounds_, value);
  ++counts_[it - bounds_.begin()];
  sum_ += value;
}

void Histogram::Print(std::string_view name, std::string_view labels, std::string& text) const {
  for (const char* part : {"_bucket", "_sum", "_count"}) PrintPart(name, labels, part, text);
}

void Histogram::PrintPart(std::string_view name, std::string_view labels, std::string_view part,
                          std::string& text) const {
  int64_t count = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    count += counts_[i];
    if (part != "_bucket") continue;
    const std::string bound = i < bounds_.size() ? absl::StrFormat("%g", bounds_[i]) : "+Inf";
    StrAppend(&text, name, part, "{", labels, "le=\"", bound, "\"} ", count, "\n");
  }
  if (part == "_bucket") return;
  const std::string rest =
      labels.empty() ? "" : StrCat("{", labels.substr(0, labels.size() - 1), "}");
  StrAppend(&text, name, part, rest, " ", part == "_sum" ? Number(sum_) : StrCat(count), "\n");
}

Metrics::Metrics(std::string prefix, std::string model)
    : prefix_(std::move(prefix)),
      model_(std::move(model)),
      first_token_(SecondsBounds()),
      token_gap_(SecondsBounds()),
      latency_(SecondsBounds()),
      queue_(SecondsBounds()),
      step_tokens_(TokenBounds()) {
  for (const char* part : {"plan", "run", "sample", "send"}) {
    step_seconds_.emplace(part, Histogram(SecondsBounds()));
  }
}

void Metrics::AddStep(const StepTimes& times, const EngineState&) {
  const std::lock_guard lock(mutex_);
  step_tokens_.Observe(static_cast<double>(times.tokens));
  step_seconds_.at("run").Observe(times.run_seconds);
  step_seconds_.at("plan").Observe(times.plan_seconds);
  step_seconds_.at("sample").Observe(times.sample_seconds);
}

void Metrics::AddSendSeconds(double seconds) {
  const std::lock_guard lock(mutex_);
  step_seconds_.at("send").Observe(seconds);
}

void Metrics::AddTokenGap(double seconds) {
  const std::lock_guard lock(mutex_);
  token_gap_.Observe(seconds);
}

void Metrics::AddFinished(const FinishedRequest& request) {
  const std::lock_guard lock(mutex_);
  ++finished_[std::string(request.finish)];
  prompt_tokens_ += request.prompt_tokens;
  cached_tokens_ += request.cached_tokens;
  generated_tokens_ += request.tokens;
  if (request.started) queue_.Observe(request.queue_seconds);
  if (request.has_tokens) first_token_.Observe(request.first_token_seconds);
  latency_.Observe(request.seconds);
}

void Metrics::AddCancelled(std::string_view during) {
  const std::lock_guard lock(mutex_);
  ++cancelled_[std::string(during)];
}

void Metrics::AddRefused(int http) {
  const std::lock_guard lock(mutex_);
  ++refused_[StrCat(http)];
}

void Metrics::SetCacheInfo(std::map<std::string, std::string> facts) {
  const std::lock_guard lock(mutex_);
  cache_info_ = std::move(facts);
}

void Metrics::Head(std::string_view name, std::string_view help, std::string_view type,
                   std::string& text) const {
  StrAppend(&text, "# HELP ", prefix_, name, " ", help, "\n# TYPE ", prefix_, name, " ", type,
            "\n");
}

void Metrics::Counter(std::string_view name, std::string_view help, int64_t value,
                      std::string& text) const {
  Head(name, help, "counter", text);
  StrAppend(&text, prefix_, name, "{model_name=\"", Escaped(model_), "\"} ", value, "\n");
}

void Metrics::Gauge(std::string_view name, std::string_view help, double value,
                    std::string& text) const {
  Head(name, help, "gauge", text);
  StrAppend(&text, prefix_, name, "{model_name=\"", Escaped(model_), "\"} ", Number(value), "\n");
}

void Metrics::Labelled(std::string_view name, std::string_view help, std::string_view label,
                       const std::map<std::string, int64_t>& values, std::string& text) const {
  Head(name, help, "counter", text);
  for (const auto& [value, count] : values) {
    StrAppend(&text, prefix_, name, "{model_name=\"", Escaped(model_), "\",", label, "=\"",
              Escaped(value), "\"} ", count, "\n");
  }
}

void Metrics::PrintTotals(const EngineState& state, std::string& text) const {
  const EngineStats& stats = state.stats;
  Counter("prompt_tokens_total", "Tokens of prompts of finished requests.", prompt_tokens_, text);
  Counter("prompt_tokens_cached_total", "Of these, tokens that the cache knew.", cached_tokens_,
          text);
  Counter("generation_tokens_total", "Tokens of answers of finished requests.", generated_tokens_,
          text);
  Counter("prefix_cache_queries_total", "Tokens of prompts that were looked up.",
          stats.prefill_tokens + stats.shared_tokens, text);
  Counter("prefix_cache_hits_total", "Tokens of prompts that were found.", stats.shared_tokens,
          text);
  Counter("prefix_lost_tokens_total", "Known tokens behind which windows or states were gone.",
          stats.prefix_lost_tokens, text);
  Counter("num_preemptions_total", "Requests that gave their pages back.", stats.preemptions, text);
  Counter("recomputed_tokens_total", "Tokens computed again after that.", stats.recomputed_tokens,
          text);
  Counter("spec_decode_num_draft_tokens_total", "Tokens that were guessed.", stats.draft_tokens,
          text);
  Counter("spec_decode_num_accepted_tokens_total", "Of these, those that were right.",
          stats.drafts_right, text);
  Labelled("request_success_total", "Finished requests.", "finished_reason", finished_, text);
  Labelled("cancelled_total", "Requests whose client left or that were ended.", "during",
           cancelled_, text);
  Labelled("refused_total", "Requests that were refused, by status of HTTP.", "reason", refused_,
           text);
}

void Metrics::PrintHistograms(std::string& text) const {
  const std::string labels = StrCat("model_name=\"", Escaped(model_), "\",");
  const auto print = [&](std::string_view name, std::string_view help, const Histogram& values) {
    Head(name, help, "histogram", text);
    values.Print(StrCat(prefix_, name), labels, text);
  };
  print("time_to_first_token_seconds", "From a request to its first token.", first_token_);
  print("inter_token_latency_seconds", "Between two tokens of an answer.", token_gap_);
  print("e2e_request_latency_seconds", "From a request to its end.", latency_);
  print("request_queue_time_seconds", "From a request to the first step that has it.", queue_);
  // vLLM's name for it, which Prometheus's check takes for that of a counter: its series have no type.
  for (const char* part : {"_bucket", "_sum", "_count"}) {
    Head(StrCat("iteration_tokens_total", part), "Tokens of a step.", "untyped", text);
    step_tokens_.PrintPart(StrCat(prefix_, "iteration_tokens_total"), labels, part, text);
  }
  Head("step_seconds", "Parts of a step.", "histogram", text);
  for (const auto& [part, values] : step_seconds_) {
    values.Print(StrCat(prefix_, "step_seconds"), StrCat(labels, "part=\"", part, "\","), text);
  }
}

std::string Metrics::Print(const EngineState& state, int64_t running, int64_t waiting) const {
  const std::lock_guard lock(mutex_);
  std::string text;
  Gauge("num_requests_running", "Requests that steps have begun.", static_cast<double>(running),
        text);
  Gauge("num_requests_waiting", "Requests that no step has begun.", static_cast<double>(waiting),
        text);
  const double used =
      state.pages == 0 ? 0
                       : static_cast<double>(state.pages_held) / static_cast<double>(state.pages);
  Gauge("kv_cache_usage_perc", "Share of pages that requests hold, 1 is all.", used, text);
  Head("pages", "Pages of the cache by state.", "gauge", text);
  const std::map<std::string_view, int64_t> pages = {
      {"free", state.pages - state.pages_held - state.pages_kept},
      {"held", state.pages_held},
      {"kept", state.pages_kept}};
  for (const auto& [name, count] : pages) {
    StrAppend(&text, prefix_, "pages{model_name=\"", Escaped(model_), "\",state=\"", name, "\"} ",
              count, "\n");
  }
  PrintTotals(state, text);
  PrintHistograms(text);
  Head("cache_config_info", "Facts of the cache.", "gauge", text);
  StrAppend(&text, prefix_, "cache_config_info{model_name=\"", Escaped(model_), "\"");
  for (const auto& [name, value] : cache_info_) {
    StrAppend(&text, ",", name, "=\"", Escaped(value), "\"");
  }
  text += "} 1\n";
  return text;
}

}  // namespace pagefuse::serve
