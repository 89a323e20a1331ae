// SPDX-License-Identifier: Apache-2.0
// What dashboards and gateways read of a server: counters, gauges and histograms, with the names of vLLM where it
// has one.
//
// Source: Prometheus's text format, version 0.0.4.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "pagefuse/serve/engine_thread.h"

namespace pagefuse::serve {

// Observations by upper bounds, ascending; one more for all above them.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds);
  void Observe(double value);
  // Lines of `name` as Prometheus reads them; `labels` as `a="b",` or empty.
  void Print(std::string_view name, std::string_view labels, std::string& text) const;
  // Of these the ones whose names end with "_bucket", "_sum" or "_count".
  void PrintPart(std::string_view name, std::string_view labels, std::string_view part,
                 std::string& text) const;

 private:
  std::vector<double> bounds_;
  std::vector<int64_t> counts_;
  double sum_ = 0;
};

// How a finished request was, for metrics and log. Seconds since it came.
struct FinishedRequest {
  std::string_view finish;  // of its first sample
  int64_t prompt_tokens = 0, cached_tokens = 0, tokens = 0;
  double queue_seconds = 0, first_token_seconds = 0, seconds = 0;
  bool started = false, has_tokens = false;
};

// Thread-safe.
class Metrics {
 public:
  // `prefix`: "pagefuse:". `model` is a label's value; none comes from a request.
  Metrics(std::string prefix, std::string model);

  void AddStep(const StepTimes& times, const EngineState& state);
  void AddSendSeconds(double seconds);
  void AddTokenGap(double seconds);  // between two tokens of one answer
  void AddFinished(const FinishedRequest& request);
  void AddCancelled(std::string_view during);  // "queued", "reading" or "writing"
  void AddRefused(int http);
  void SetCacheInfo(std::map<std::string, std::string> facts);

  // `waiting`: requests that no step has begun.
  std::string Print(const EngineState& state, int64_t running, int64_t waiting) const;

 private:
  void Counter(std::string_view name, std::string_view help, int64_t value,
               std::string& text) const;
  void Gauge(std::string_view name, std::string_view help, double value, std::string& text) const;
  void Head(std::string_view name, std::string_view help, std::string_view type,
            std::string& text) const;
  void Labelled(std::string_view name, std::string_view help, std::string_view label,
                const std::map<std::string, int64_t>& values, std::string& text) const;
  void PrintTotals(const EngineState& state, std::string& text) const;
  void PrintHistograms(std::string& text) const;

  std::string prefix_, model_;
  mutable std::mutex mutex_;
  std::map<std::string, std::string> cache_info_;
  int64_t prompt_tokens_ = 0, cached_tokens_ = 0, generated_tokens_ = 0;
  std::map<std::string, int64_t> finished_, cancelled_, refused_;
  Histogram first_token_, token_gap_, latency_, queue_, step_tokens_;
  std::map<std::string, Histogram> step_seconds_;  // by part
};

}  // namespace pagefuse::serve
