// SPDX-License-Identifier: Apache-2.0
// The text that dashboards read.
#include "pagefuse/serve/metrics.h"

#include <map>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/base/str_cat.h"

namespace pagefuse::serve {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::map<std::string, double> ValuesOf(const std::string& text) {
  std::map<std::string, double> values;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('#')) continue;
    const size_t space = line.rfind(' ');
    EXPECT_TRUE(values.emplace(line.substr(0, space), std::stod(line.substr(space))).second)
        << "twice: " << line;
  }
  return values;
}

TEST(MetricsText, BucketsOfAHistogramAddUp) {
  Histogram histogram({1, 2.5, 10});
  for (const double value : {0.5, 1.0, 1.5, 2.5, 9.0, 11.0, 100.0}) histogram.Observe(value);
  std::string text;
  histogram.Print("h", "a=\"b\",", text);
  EXPECT_EQ(text,
            "h_bucket{a=\"b\",le=\"1\"} 2\n"
            "h_bucket{a=\"b\",le=\"2.5\"} 4\n"
            "h_bucket{a=\"b\",le=\"10\"} 5\n"
            "h_bucket{a=\"b\",le=\"+Inf\"} 7\n"
            "h_sum{a=\"b\"} 125.5\n"
            "h_count{a=\"b\"} 7\n");
  text.clear();
  Histogram({1}).Print("h", "", text);
  EXPECT_EQ(text, "h_bucket{le=\"1\"} 0\nh_bucket{le=\"+Inf\"} 0\nh_sum 0\nh_count 0\n");
}

TEST(MetricsText, WhatWasAddedStandsThere) {
  Metrics metrics("p:", "m");
  metrics.AddFinished({.finish = "stop",
                       .prompt_tokens = 10,
                       .cached_tokens = 4,
                       .tokens = 3,
                       .queue_seconds = 0.5,
                       .first_token_seconds = 0.7,
                       .seconds = 1.5,
                       .started = true,
                       .has_tokens = true});
  metrics.AddFinished({.finish = "abort", .prompt_tokens = 7, .seconds = 0.25});
  metrics.AddCancelled("queued");
  metrics.AddRefused(400);
  metrics.AddRefused(400);
  metrics.AddRefused(429);
  metrics.AddTokenGap(0.125);
  const EngineState state = {.pages = 20, .pages_held = 5, .pages_kept = 3};
  auto values = ValuesOf(metrics.Print(state, 2, 1));
  const auto value = [&values](std::string_view name, std::string_view labels = "") {
    const std::string key = StrCat("p:", name, "{model_name=\"m\"", labels, "}");
    return values.contains(key) ? values[key] : -1;
  };
  EXPECT_EQ(value("num_requests_running"), 2);
  EXPECT_EQ(value("num_requests_waiting"), 1);
  EXPECT_EQ(value("kv_cache_usage_perc"), 0.25);
  EXPECT_EQ(value("pages", ",state=\"held\""), 5);
  EXPECT_EQ(value("pages", ",state=\"kept\""), 3);
  EXPECT_EQ(value("pages", ",state=\"free\""), 12);
  EXPECT_EQ(value("prompt_tokens_total"), 17);
  EXPECT_EQ(value("prompt_tokens_cached_total"), 4);
  EXPECT_EQ(value("generation_tokens_total"), 3);
  EXPECT_EQ(value("request_success_total", ",finished_reason=\"stop\""), 1);
  EXPECT_EQ(value("request_success_total", ",finished_reason=\"abort\""), 1);
  EXPECT_EQ(value("cancelled_total", ",during=\"queued\""), 1);
  EXPECT_EQ(value("refused_total", ",reason=\"400\""), 2);
  EXPECT_EQ(value("refused_total", ",reason=\"429\""), 1);
  EXPECT_EQ(value("e2e_request_latency_seconds_count"), 2);
  EXPECT_EQ(value("e2e_request_latency_seconds_sum"), 1.75);
  EXPECT_EQ(value("request_queue_time_seconds_count"), 1);  // the other was never begun
  EXPECT_EQ(value("time_to_first_token_seconds_count"), 1);
  EXPECT_EQ(value("inter_token_latency_seconds_sum"), 0.125);
}

TEST(MetricsText, EachMetricHasOneHeadAndNamesDoNoHarm) {
  Metrics metrics("pagefuse:", "a\"b\\c\nd");
  metrics.SetCacheInfo({{"page_bytes", "64"}});
  const std::string text = metrics.Print({}, 0, 0);
  EXPECT_THAT(text, HasSubstr("model_name=\"a\\\"b\\\\c d\""));
  EXPECT_THAT(text, HasSubstr(",page_bytes=\"64\"} 1\n"));
  EXPECT_THAT(text, Not(HasSubstr("nan")));
  std::map<std::string, int> types;
  std::istringstream lines(text);
  std::string family;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# TYPE ")) {
      family = line.substr(7, line.rfind(' ') - 7);
      EXPECT_EQ(++types[family], 1) << family;
    } else if (!line.starts_with('#')) {
      EXPECT_TRUE(line.starts_with(family)) << line;
    }
  }
  EXPECT_GT(types.size(), 20u);
}

}  // namespace
}  // namespace pagefuse::serve
