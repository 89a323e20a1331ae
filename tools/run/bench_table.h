// SPDX-License-Identifier: Apache-2.0
// Prints measurements as a table: for people, Markdown, CSV or JSON.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace pagefuse::tools {

struct BenchRow {
  std::string model, weights, cache;
  int64_t batch = 1;
  std::string test;        // "prompt 512", "generate 128 at 4096"
  bool generates = false;  // else it reads prompts
  int64_t tokens = 0;      // of the prompt, or generated
  int64_t depth = 0;       // tokens before those that are generated
  double load_seconds = 0;
  std::vector<double> tokens_per_second;  // one a repetition
  // Of a step in which all sequences generate, on a device: what it took, and the device of that. Else 0.
  double step_ms = 0, device_ms = 0;
};

struct Spread {
  double mean = 0, deviation = 0;  // of the sample
};
Spread SpreadOf(const std::vector<double>& values);

nlohmann::ordered_json BenchJson(const std::vector<BenchRow>& rows);
// A page of them (html_page.h).
std::string BenchPage(const std::string& model, const std::vector<BenchRow>& rows);
// `format`: text, md, csv or json. InvalidArgument for others.
absl::StatusOr<std::string> BenchTable(const std::vector<BenchRow>& rows, std::string_view format);

}  // namespace pagefuse::tools
