// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/debug/bisect.h"

#include <limits>
#include <map>
#include <memory>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/tensor/machine_memory.h"
#include "pagefuse/ir/tensor/memory_budget.h"
#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/ops/evaluate/padding.h"
#include "pagefuse/passes/verify/compare_models.h"

namespace pagefuse {
namespace {

class Halving {
 public:
  Halving(const Model& model, const PipelineOptions& options, const RewriteJudge& judge)
      : model_(model), options_(options), judge_(judge) {
    options_.verify = false;
    options_.log_rewrites = false;
    options_.print_to = nullptr;
    options_.explain.clear();
  }

  absl::StatusOr<Bisection> Run() {
    const int64_t most = options_.rewrite_limit.value_or(kEndless);
    PF_ASSIGN_OR_RETURN(const std::string all, WrongAt(most, &out_.rewrites));
    out_.steps.push_back({out_.rewrites, all});
    if (all.empty()) return std::move(out_);
    int64_t good = 0, bad = out_.rewrites;
    PF_ASSIGN_OR_RETURN(const std::string none, WrongAt(0, nullptr));
    if (!none.empty()) {
      return absl::InvalidArgumentError(StrCat("the model is wrong before any rewrite: ", none));
    }
    while (bad - good > 1) {
      const int64_t middle = good + (bad - good) / 2;
      PF_ASSIGN_OR_RETURN(const std::string wrong, WrongAt(middle, nullptr));
      out_.steps.push_back({middle, wrong});
      (wrong.empty() ? good : bad) = middle;
    }
    PF_RETURN_IF_ERROR(Name(bad));
    return std::move(out_);
  }

 private:
  static constexpr int64_t kEndless = std::numeric_limits<int64_t>::max();

  absl::StatusOr<PipelineReport> RunTo(int64_t limit, Model& model) const {
    PipelineOptions options = options_;
    options.rewrite_limit = limit;
    return RunPipeline(model, options);
  }

  absl::StatusOr<std::string> WrongAt(int64_t limit, int64_t* rewrites) {
    Model model = model_.Clone();
    const auto report = RunTo(limit, model);
    if (!report.ok()) {
      // How many there were is told by a run that only counts.
      if (rewrites != nullptr) *rewrites = CountBeforeFailure();
      return StrCat("the passes fail: ", StdView(report.status().message()));
    }
    if (rewrites != nullptr) *rewrites = report->rewrites;
    return judge_(model, limit);
  }

  // The last limit at which the pipeline still runs, and one more.
  int64_t CountBeforeFailure() const {
    int64_t good = 0, bad = 1;
    const auto stops = [&](int64_t limit) {
      Model model = model_.Clone();
      const auto report = RunTo(limit, model);
      return report.ok() && report->stopped;
    };
    while (stops(bad)) bad *= 2;
    while (bad - good > 1) {
      const int64_t middle = good + (bad - good) / 2;
      (stops(middle) ? good : bad) = middle;
    }
    return bad;
  }

  absl::Status Name(int64_t number) {
    Model model = model_.Clone();
    PipelineOptions options = options_;
    options.rewrite_limit = number;
    options.log_rewrites = true;
    const auto report = RunPipeline(model, options);
    Rewrite bad{.number = number, .pass = {}, .rule = {}, .at = {}, .taken = {}, .made = {}};
    if (report.ok() && static_cast<int64_t>(report->log.size()) == number) {
      bad = report->log.back();
    } else if (!report.ok()) {
      bad.detail = std::string(StdView(report.status().message()));
    }
    out_.bad = std::move(bad);
    return absl::OkStatus();
  }

  const Model& model_;
  PipelineOptions options_;
  const RewriteJudge& judge_;
  Bisection out_;
};

struct Sample {
  std::map<std::string, Tensor> feeds;
  std::vector<Tensor> outputs;
};

absl::StatusOr<std::vector<Sample>> Samples(const Model& before, const PipelineOptions& options) {
  absl::Status why;
  const int attempts = options.feeds.empty() ? kFeedAttempts : 1;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    std::vector<Sample> samples;
    const size_t count =
        options.feeds.empty() ? static_cast<size_t>(options.samples) : options.feeds.size();
    for (size_t i = 0; i < count; ++i) {
      Sample sample;
      if (options.feeds.empty()) {
        PF_ASSIGN_OR_RETURN(sample.feeds, RandomFeeds(before, attempt, static_cast<int>(i)));
      } else {
        sample.feeds = options.feeds[i];
      }
      auto outputs = EvaluateModel(before, sample.feeds);
      why = outputs.status();
      if (!outputs.ok()) break;
      sample.outputs = *std::move(outputs);
      samples.push_back(std::move(sample));
    }
    if (why.ok()) return samples;
  }
  return absl::UnimplementedError(
      StrCat("the model does not run on made-up inputs: ", StdView(why.message())));
}

// What one sample shows of the model, if anything.
absl::StatusOr<std::string> Wrong(const Model& before, const Model& after, const Sample& sample,
                                  double tolerance) {
  auto got = EvaluateModel(after, sample.feeds);
  if (!got.ok()) return StrCat("it does not run: ", StdView(got.status().message()));
  const Padding padding(sample.feeds);
  for (size_t i = 0; i < sample.outputs.size(); ++i) {
    const Value& output = *before.graph->outputs()[i];
    const std::string detail = DifferenceText(padding.Blank(output, sample.outputs[i]),
                                              padding.Blank(output, (*got)[i]), tolerance);
    if (!detail.empty()) return StrCat("\"", output.name(), "\" differ");
  }
  return std::string();
}

}  // namespace

absl::StatusOr<Bisection> Bisect(const Model& model, const PipelineOptions& options,
                                 const RewriteJudge& judge) {
  return Halving(model, options, judge).Run();
}

absl::StatusOr<RewriteJudge> OutputJudge(const Model& before, const PipelineOptions& options) {
  auto copy = std::make_shared<Model>(before.Clone());
  PF_RETURN_IF_ERROR(InferShapes(*copy));
  const MemoryBudgetScope scope(std::make_shared<MemoryBudget>(DefaultMemoryBytes()));
  PF_ASSIGN_OR_RETURN(std::vector<Sample> samples, Samples(*copy, options));
  const double tolerance = ModelTolerance(*copy);
  return RewriteJudge([copy, samples = std::move(samples), tolerance](
                          const Model& after, int64_t) -> absl::StatusOr<std::string> {
    if (!SameInterface(InterfaceOf(*copy->graph), InterfaceOf(*after.graph))) {
      return absl::UnimplementedError(std::string(kInterfaceChanged));
    }
    for (const Sample& sample : samples) {
      PF_ASSIGN_OR_RETURN(std::string wrong, Wrong(*copy, after, sample, tolerance));
      if (!wrong.empty()) return wrong;
    }
    return std::string();
  });
}

std::string BisectionText(const Bisection& bisection) {
  std::string text = StrCat(bisection.rewrites, " rewrites");
  std::string last;
  for (const BisectStep& step : bisection.steps) {
    const bool first = &step == &bisection.steps.front();
    StrAppend(&text, "; ", first ? std::string("all") : StrCat("1-", step.limit),
              first ? ": " : " ");
    if (step.wrong.empty()) {
      text += "equal";
    } else if (first || step.wrong != last) {
      text += step.wrong;
    } else {
      text += "differ";
    }
    if (!step.wrong.empty()) last = step.wrong;
  }
  return text;
}

}  // namespace pagefuse
