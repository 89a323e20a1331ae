// SPDX-License-Identifier: Apache-2.0
// Times a graph as it came, without fusions, on made-up feeds, and prints one JSON object with the
// keys of ort_peer/graph.js, which feeds the same numbers.
//
//   graph_bench MODEL --run prefill:batch=1,sequence=512,past_sequence=0 [--run ...] [--repeats 3]
//
// A run is a name and the sizes of the inputs' symbols; `first` is the first position, `ids` bounds the
// token ids (1002). Integers are token ids, ones for a mask and positions, by the input's name; floats lie between -1 and 1.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "peaks.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/runtime/session.h"

namespace pagefuse {
namespace {

using Json = nlohmann::json;
using Sizes = std::map<std::string, int64_t>;

struct Options {
  std::string model;
  std::vector<std::string> runs;
  int repeats = 3;
  int threads = 2;
  bool profile = false;
};

struct NamedRun {
  std::string name;
  Sizes sizes;
};

absl::StatusOr<NamedRun> ParseRun(const std::string& text) {
  const size_t colon = text.find(':');
  NamedRun run{text.substr(0, colon), {}};
  if (colon == std::string::npos) return absl::InvalidArgumentError("--run: expected NAME:SIZES");
  const std::vector<std::string> parts =
      absl::StrSplit(text.substr(colon + 1), ',', absl::SkipEmpty());
  for (const std::string& part : parts) {
    const std::vector<std::string> sides = absl::StrSplit(part, '=');
    int64_t size = 0;
    if (sides.size() != 2 || !absl::SimpleAtoi(sides[1], &size) || size < 0 ||
        (sides[0] == "ids" && size < 3)) {
      return absl::InvalidArgumentError(StrCat("--run: expected SYMBOL=SIZE, got \"", part, "\""));
    }
    run.sizes[sides[0]] = size;
  }
  return run;
}

int64_t Integer(const std::string& input, const Sizes& sizes, int64_t i) {
  const auto size = [&](const char* name, int64_t fallback) {
    return sizes.contains(name) ? sizes.at(name) : fallback;
  };
  if (input == "attention_mask") return 1;
  if (input == "position_ids") return size("first", 0) + i;
  return 2 + i * 37 % (size("ids", 1002) - 2);
}

absl::StatusOr<Tensor> MakeFeed(const Value& input, const Sizes& sizes) {
  const std::map<std::string, Dim> symbols(sizes.begin(), sizes.end());
  const auto dims = input.shape() ? input.shape()->Substitute(symbols).constant() : std::nullopt;
  if (!dims) {
    return absl::InvalidArgumentError(
        StrCat("input \"", input.name(), "\": no sizes for ",
               input.shape() ? input.shape()->ToString() : std::string("an unknown rank")));
  }
  PF_ASSIGN_OR_RETURN(Tensor feed, Tensor::Allocate(input.dtype(), *dims));
  if (input.dtype() == DataType::kInt64) {
    auto* values = static_cast<int64_t*>(feed.mutable_data());
    for (int64_t i = 0; i < feed.size(); ++i) values[i] = Integer(input.name(), sizes, i);
  } else if (input.dtype() == DataType::kFloat) {
    auto* values = static_cast<float*>(feed.mutable_data());
    for (int64_t i = 0; i < feed.size(); ++i) {
      values[i] = static_cast<float>(i * 2654435761 % 1024) / 512 - 1;
    }
  } else {
    return absl::UnimplementedError(StrCat("input \"", input.name(), "\": its type"));
  }
  return feed;
}

// Milliseconds by op and kernel of the session's last run, longest first, to the error stream.
void PrintProfile(const Session& session) {
  std::map<std::string, std::pair<double, int>> by_op;
  for (const NodeProfile& node : session.Profile()) {
    auto& [milliseconds, count] = by_op[StrCat(node.node->op_type(), " ", node.kernel)];
    milliseconds += node.duration_us / 1e3;
    ++count;
  }
  std::vector<std::pair<std::string, std::pair<double, int>>> rows(by_op.begin(), by_op.end());
  std::sort(rows.begin(), rows.end(),
            [](const auto& a, const auto& b) { return a.second.first > b.second.first; });
  for (const auto& [name, sums] : rows) {
    std::fprintf(stderr, "%10.3f %6d  %s\n", sums.first, sums.second, name.c_str());
  }
}

// Seconds of the fastest run after one that is not counted, which reads mapped weights.
absl::StatusOr<double> TimeRun(Session& session, const Sizes& sizes, int repeats) {
  std::map<std::string, Tensor> feeds;
  for (const Value* input : session.model().graph->inputs()) {
    PF_ASSIGN_OR_RETURN(feeds[input->name()], MakeFeed(*input, sizes));
  }
  double best = std::numeric_limits<double>::infinity();
  for (int i = -1; i < repeats; ++i) {
    const double start = Now();
    PF_RETURN_IF_ERROR(session.Run(feeds).status());
    if (i >= 0) best = std::min(best, Now() - start);
  }
  return best;
}

absl::StatusOr<Json> Measure(const Options& options) {
  SessionOptions session_options;
  session_options.optimise = false;
  session_options.profile = options.profile;
  session_options.num_threads = options.threads;
  const double start = Now();
  PF_ASSIGN_OR_RETURN(const auto session, Session::Load(options.model, session_options));
  Json report = {{"program", "pagefuse"},
                 {"version", "unfused"},
                 {"session_seconds", Now() - start},
                 {"runs", Json::array()}};
  for (const std::string& text : options.runs) {
    PF_ASSIGN_OR_RETURN(const NamedRun run, ParseRun(text));
    PF_ASSIGN_OR_RETURN(const double seconds, TimeRun(*session, run.sizes, options.repeats));
    if (options.profile) PrintProfile(*session);
    report["runs"].push_back({{"name", run.name}, {"seconds", seconds}});
  }
  const SessionStats stats = session->stats();
  report["weight_bytes"] = stats.weight_bytes;
  report["packed_weight_bytes"] = stats.packed_weight_bytes;
  report["arena_bytes"] = stats.arena_bytes;
  report["output_bytes"] = stats.output_bytes;
  report["peak_rss_bytes"] = PeakResidentBytes();
  return report;
}

}  // namespace
}  // namespace pagefuse

int main(int argc, char** argv) {
  pagefuse::Options options;
  CLI::App app("Times a graph without fusions");
  app.add_option("model", options.model)->required();
  app.add_option("--run", options.runs, "NAME:SYMBOL=SIZE,...")->required();
  app.add_option("--repeats", options.repeats)->check(CLI::PositiveNumber);
  app.add_option("--threads", options.threads);
  app.add_flag("--profile", options.profile, "time by op and kernel of each run's last repeat");
  CLI11_PARSE(app, argc, argv);
  const absl::StatusOr<nlohmann::json> report = pagefuse::Measure(options);
  if (!report.ok()) {
    std::cerr << "graph_bench: " << report.status().message() << "\n";
    return 1;
  }
  std::cout << report->dump() << "\n";
  return 0;
}
