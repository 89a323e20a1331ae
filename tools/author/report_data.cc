// SPDX-License-Identifier: Apache-2.0
#include "tools/author/report_data.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <vector>

#include "absl/strings/str_split.h"
#include "tools/author/paged_layers.h"
#include "tools/run/cache_traffic.h"

#include "pagefuse/base/short_message.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/graph/absent_data.h"
#include "pagefuse/passes/edit/graph_snapshot.h"
#include "pagefuse/runtime/paged_model.h"

namespace pagefuse::tools {
namespace {

constexpr int64_t kPrefillTokens = 512;

int64_t ConstantBytes(const Model& model) {
  int64_t bytes = 0;
  for (const Value* value : model.graph->initializers()) bytes += value->initializer()->byte_size();
  return bytes;
}

ReportJson Ports(const std::vector<Value*>& values) {
  ReportJson ports = ReportJson::array();
  for (const Value* value : values) ports.push_back(StrCat(TypeText(*value), " ", value->name()));
  return ports;
}

ReportJson Facts(const ReportSource& source) {
  const Graph& before = *source.before.graph;
  const Graph& after = *source.after.graph;
  return {{"model", source.path},
          {"producer", source.before.producer_name},
          {"opset", source.before.OpsetVersion("")},
          {"nodes_before", before.num_nodes()},
          {"nodes_after", after.num_nodes()},
          {"constant_bytes", ConstantBytes(source.before)},
          {"inputs_before", Ports(before.inputs())},
          {"inputs_after", Ports(after.inputs())},
          {"not_paged", source.pipeline.why_not_paged}};
}

ReportJson LayersOf(const LayerReport& report) {
  ReportJson layers = ReportJson::array();
  for (const auto& [layer, ops] : report.ops) layers.push_back({{"layer", layer}, {"ops", ops}});
  return layers;
}

ReportJson MissingOf(const LayerReport& report) {
  ReportJson missing = ReportJson::array();
  for (const LayerReport::Missing& one : report.missing) {
    missing.push_back({{"op", one.op}, {"expected", one.expected}, {"found", one.found}});
  }
  return missing;
}

ReportJson LeftoversOf(const LayerReport& report) {
  ReportJson leftovers = ReportJson::array();
  for (const Leftover& leftover : report.leftovers) {
    const MissedMatch& miss = leftover.place.nearest;
    ReportJson sides = ReportJson::array();
    for (const auto& [pattern, graph] : miss.side_by_side) sides.push_back({pattern, graph});
    leftovers.push_back({{"layer", leftover.layer},
                         {"op", leftover.op},
                         {"value", leftover.value},
                         {"family", leftover.place.family},
                         {"rule", leftover.place.rule},
                         {"variant", miss.variant},
                         {"matched", miss.matched_nodes},
                         {"nodes", miss.pattern_nodes},
                         {"failed", leftover.place.reason},
                         {"side_by_side", sides}});
  }
  return leftovers;
}

// How often each rule fired, and what became of the numbers.
ReportJson RewritesOf(const std::vector<Rewrite>& log) {
  struct Tally {
    std::string pass;
    int count = 0, equal = 0, differ = 0, not_compared = 0;
    std::string detail;
  };
  std::vector<std::string> order;
  std::map<std::string, Tally> tallies;
  for (const Rewrite& rewrite : log) {
    Tally& tally = tallies[rewrite.rule];
    if (tally.count++ == 0) order.push_back(rewrite.rule);
    tally.pass = rewrite.pass;
    tally.equal += rewrite.numbers == Rewrite::Numbers::kEqual ? 1 : 0;
    tally.differ += rewrite.numbers == Rewrite::Numbers::kDiffer ? 1 : 0;
    tally.not_compared += rewrite.numbers == Rewrite::Numbers::kNotCompared ? 1 : 0;
    if (tally.detail.empty()) tally.detail = rewrite.detail;
  }
  ReportJson rules = ReportJson::array();
  for (const std::string& rule : order) {
    const Tally& tally = tallies[rule];
    rules.push_back({{"rule", rule},
                     {"pass", tally.pass},
                     {"rewrites", tally.count},
                     {"equal", tally.equal},
                     {"differ", tally.differ},
                     {"not_compared", tally.not_compared},
                     {"detail", tally.detail}});
  }
  return rules;
}

// Of constants that a node reads.
int64_t BytesRead(const Node& node) {
  int64_t bytes = 0;
  for (const Value* input : node.inputs()) {
    if (input != nullptr && input->IsConstant()) bytes += input->initializer()->byte_size();
  }
  return bytes;
}

ReportJson TimesOf(const Session& session, double milliseconds, const CacheTraffic& cache) {
  struct Sum {
    double us = 0;
    int64_t constants = 0;
    CacheTraffic::Bytes cache;
    int nodes = 0;
  };
  std::map<std::string, Sum> sums;
  double all = 0;
  for (const NodeProfile& profile : session.Profile()) {
    const Node& node = *profile.node;
    Sum& sum = sums[StrCat(OpName(node), " (", profile.kernel, ")")];
    sum.us += profile.duration_us;
    sum.constants += BytesRead(node);
    const CacheTraffic::Bytes moved = cache.OfNode(node);
    sum.cache.read += moved.read;
    sum.cache.written += moved.written;
    ++sum.nodes;
    all += profile.duration_us;
  }
  std::vector<std::pair<std::string, Sum>> sorted(sums.begin(), sums.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.us > b.second.us; });
  ReportJson ops = ReportJson::array();
  for (const auto& [op, sum] : sorted) {
    const auto bytes = static_cast<double>(sum.constants + sum.cache.read + sum.cache.written);
    ops.push_back({{"op", op},
                   {"nodes", sum.nodes},
                   {"milliseconds", sum.us / 1e3},
                   {"share", all > 0 ? sum.us / all : 0},
                   {"constant_bytes", sum.constants},
                   {"cache_bytes_read", sum.cache.read},
                   {"cache_bytes_written", sum.cache.written},
                   {"gigabytes_per_second", sum.us > 0 ? bytes / sum.us / 1e3 : 0}});
  }
  return {{"milliseconds", milliseconds}, {"ops", ops}};
}

// One prompt and one token more; each timed the second time.
absl::StatusOr<ReportJson> RunTimes(const ReportSource& source) {
  PF_RETURN_IF_ERROR(CheckDataPresent(source.before));
  PagedModelOptions options;
  options.session.pipeline = source.options;
  options.session.pipeline.verify = false;
  options.session.pipeline.explain.clear();
  options.session.pipeline.feeds.clear();
  options.session.profile = true;
  PF_ASSIGN_OR_RETURN(const auto model, PagedModel::Create(source.before.Clone(), options));
  PF_RETURN_IF_ERROR(model->Reserve({kPrefillTokens + 2}, kPrefillTokens));
  std::vector<int64_t> prompt(kPrefillTokens);
  for (int64_t i = 0; i < kPrefillTokens; ++i)
    prompt[i] = model->NextThatRuns(i * 17 % model->vocabulary());
  using Clock = std::chrono::steady_clock;
  const auto timed = [&](SequenceId sequence, std::vector<int64_t> ids) -> absl::StatusOr<double> {
    const auto start = Clock::now();
    PF_RETURN_IF_ERROR(model->Step({{.sequence = sequence, .ids = std::move(ids)}}).status());
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  };
  const CacheTraffic first(model->layout(), 0, kPrefillTokens);
  const CacheTraffic more(model->layout(), kPrefillTokens + 1, 1);
  ReportJson times;
  for (int repeat = 0; repeat < 2; ++repeat) {
    const SequenceId sequence = model->cache().AddSequence();
    PF_ASSIGN_OR_RETURN(const double prefill, timed(sequence, prompt));
    times["prefill"] = TimesOf(model->session(), prefill, first);
    times["prefill"]["tokens"] = kPrefillTokens;
    PF_RETURN_IF_ERROR(timed(sequence, {model->NextThatRuns(1)}).status());
    PF_ASSIGN_OR_RETURN(const double decode, timed(sequence, {model->NextThatRuns(2)}));
    times["decode"] = TimesOf(model->session(), decode, more);
    times["decode"]["tokens"] = 1;
    model->cache().Remove(sequence);
  }
  times["kernels"] = std::vector<std::string>(
      absl::StrSplit(model->session().KernelReport(), '\n', absl::SkipEmpty()));
  return times;
}

}  // namespace

ReportJson ReportData(const ReportSource& source) {
  return {{"facts", Facts(source)},
          {"options", source.options.options},
          {"layers", LayersOf(source.layers)},
          {"missing", MissingOf(source.layers)},
          {"leftovers", LeftoversOf(source.layers)},
          {"rewrites", RewritesOf(source.pipeline.log)},
          {"verify", VerifySummary(source.pipeline.log)},
          {"cache", PagedLayers(source.after)}};
}

ReportJson ReportTimes(const ReportSource& source) {
  const auto times = RunTimes(source);
  if (times.ok()) return *times;
  return {{"refused", ShortMessage(StdView(times.status().message()))}};
}

}  // namespace pagefuse::tools
