// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/rewrite_check.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/graph/compute_type.h"
#include "pagefuse/ops/cache/cache_groups.h"
#include "pagefuse/passes/debug/bisect.h"
#include "pagefuse/passes/edit/op_types.h"
#include "pagefuse/runtime/compare_rows.h"
#include "pagefuse/runtime/float_form.h"
#include "pagefuse/runtime/probe_cost.h"

namespace pagefuse {
namespace {

using Clock = ProbeClock;

// A graph that runs node by node as it came.
EngineOptions AsItCame(const EngineOptions& options) {
  EngineOptions bare = StoredAsItIs(options);
  bare.session.optimise = false;
  bare.session.load_passes = false;
  bare.session.profile = false;
  bare.block_size.reset();
  bare.on_step = nullptr;
  return bare;
}

// Whether a little rounding may change what is computed next: which rows or experts are chosen,
// which code a number gets.
bool Chooses(const Graph& graph) {
  return std::ranges::any_of(graph.nodes(), [](const auto& node) {
    if (IsAnyOf(*node, {"TopK", "ArgMax", "Round", "QuantizeLinear", "DynamicQuantizeLinear"})) {
      return true;
    }
    return std::ranges::any_of(node->Subgraphs(), [](const Graph* part) { return Chooses(*part); });
  });
}

// How many tolerances rows of a graph of 16-bit floats may be apart that are held against the graph
// in float: as many as there are forms that round.
constexpr double kRoundedApart = 2;

bool ComputesInHalf(const Model& model) {
  const DataType type = ComputeType(*model.graph);
  return type == DataType::kFloat16 || type == DataType::kBfloat16;
}

// Runs the graph as it was exported, each text once.
class Reference {
 public:
  // Products read transposed weights where they are: a copy of all of them, each run, would take
  // longer than the rest of it.
  static absl::StatusOr<Reference> Of(const Model& exported, const EngineOptions& options) {
    EngineOptions bare = AsItCame(options);
    bare.session.load_passes = true;
    for (const std::string& pass : LoadPasses()) {
      if (pass != "fuse-transposed-factors") bare.session.pipeline.disabled.push_back(pass);
    }
    PF_ASSIGN_OR_RETURN(auto decoder, PlainDecoder::Create(exported.Clone(), bare));
    return Reference(std::move(decoder));
  }

  // The same with float in place of 16-bit floats.
  static absl::StatusOr<Reference> InFloatOf(const Model& exported, const EngineOptions& options) {
    PF_ASSIGN_OR_RETURN(const Model wide, InFloat(exported));
    return Of(wide, options);
  }

  const PlainDecoder& decoder() const { return *decoder_; }
  const Model& model() const { return decoder_->session().model(); }

  absl::StatusOr<const LogitRows*> Rows(const ProbeText& text) {
    const auto known = rows_.find(text);
    if (known != rows_.end()) return &known->second;
    const auto start = Clock::now();
    auto rows = decoder_->Logits(text.prompt, text.following, text.first_position);
    pace_.Add(WorkOfText(text, decoder_->keeps_past()), SecondsSince(start));
    PF_RETURN_IF_ERROR(rows.status());
    return &rows_.emplace(text, *std::move(rows)).first->second;
  }

  // That all texts have taken so far.
  double seconds() const { return pace_.seconds; }
  // That the texts of the probe will take that have not run yet.
  double SecondsFor(const Probe& probe) const {
    double work = 0;
    for (const ProbeText& text : probe.texts) {
      if (!rows_.contains(text)) work += WorkOfText(text, decoder_->keeps_past());
    }
    return pace_.SecondsFor(work);
  }

 private:
  explicit Reference(std::unique_ptr<PlainDecoder> decoder) : decoder_(std::move(decoder)) {}

  std::unique_ptr<PlainDecoder> decoder_;
  std::map<ProbeText, LogitRows> rows_;
  ProbePace pace_;
};

std::set<int64_t> EdgesOf(const Runnable& runnable) {
  std::set<int64_t> edges;
  if (!runnable.paged) return edges;
  for (const CacheGroup& group : runnable.paged->layout().groups()) {
    edges.insert(group.block_size * group.tokens_per_row());
    if (group.sliding_window > 0) edges.insert(group.sliding_window);
    if (group.ratio > 1) edges.insert({group.ratio, 2 * group.ratio});
  }
  return edges;
}

// What a form of the graph showed.
struct Finding {
  std::string detail;  // empty: all rows were equal
  std::optional<Probe> probe;
  int64_t compared = 0, skipped = 0, starved = 0;
};

class Checker {
 public:
  // `start`: from when on the seconds count.
  Checker(const Model& exported, const EngineOptions& options, const RewriteCheckOptions& check,
          Clock::time_point start, Reference reference)
      : exported_(exported),
        options_(options),
        budget_{start, check.seconds},
        reference_(std::move(reference)),
        points_(FindProbePoints(reference_.model(), reference_.decoder().inputs())),
        computed_(check.tolerance ? RowTolerance{.largest = *check.tolerance}
                                  : ComputedTolerance(reference_.model())),
        chooses_(Chooses(*reference_.model().graph)),
        rounds_(!check.tolerance && ComputesInHalf(reference_.model())) {}

  absl::StatusOr<RewriteVerdict> Run(Runnable* made) {
    const auto stored = StoredTolerance(options_);
    if (!stored) return Mend(options_, computed_, budget_, made);
    // First without what formats add, so that nothing hides behind their errors.
    PF_ASSIGN_OR_RETURN(
        RewriteVerdict verdict,
        Mend(StoredAsItIs(options_), computed_, {budget_.start, budget_.seconds / 2}, nullptr));
    if (verdict.differs() || verdict.outcome == RewriteVerdict::Outcome::kUnchecked) return verdict;
    PF_ASSIGN_OR_RETURN(const RewriteVerdict coded, Mend(options_, *stored, budget_, made));
    if (coded.differs()) return coded;
    verdict.probes += coded.probes;
    verdict.skipped += coded.skipped;
    verdict.starved += coded.starved;
    return verdict;
  }

  absl::StatusOr<int64_t> Compare() {
    PF_ASSIGN_OR_RETURN(Runnable made, MakeRunnable(exported_, StoredAsItIs(options_)));
    PF_ASSIGN_OR_RETURN(const Finding finding, CompareAll(made, computed_, budget_));
    if (!finding.detail.empty()) return absl::InvalidArgumentError(Reason(std::nullopt, finding));
    if (finding.compared == 0) return absl::UnimplementedError(why_not_);
    return finding.compared;
  }

 private:
  // Leaves rules out until all is equal. `made`: what the options give, or null. What is mended has the
  // seconds anew.
  absl::StatusOr<RewriteVerdict> Mend(const EngineOptions& options, const RowTolerance& tolerance,
                                      ProbeBudget budget, Runnable* made) {
    RewriteVerdict verdict;
    constexpr int kMostRounds = 8;
    for (int round = 0; round < kMostRounds; ++round) {
      const EngineOptions here = UnderVerdict(options, verdict);
      Runnable own;
      if (made == nullptr) {
        auto runnable = MakeRunnable(exported_, here);
        if (!runnable.ok() && round > 0) break;
        PF_RETURN_IF_ERROR(runnable.status());
        own = *std::move(runnable);
      }
      Runnable& runnable = made == nullptr ? own : *made;
      made = nullptr;
      if (round > 0) budget.start = Clock::now();
      PF_ASSIGN_OR_RETURN(const Finding finding, CompareAll(runnable, tolerance, budget));
      verdict.probes = finding.compared;
      verdict.skipped = finding.skipped;
      verdict.starved = finding.starved;
      if (finding.detail.empty()) return Equal(std::move(verdict));
      PF_ASSIGN_OR_RETURN(
          const std::optional<Rewrite> bad,
          FirstBad(here, runnable.paged != nullptr, finding, tolerance, verdict.starved));
      if (!bad || !LeaveOut(*bad, verdict)) {
        verdict.reason = Reason(bad, finding);
        break;
      }
      if (verdict.reason.empty()) verdict.reason = Reason(bad, finding);
      verdict.outcome = RewriteVerdict::Outcome::kMended;
    }
    verdict.outcome = RewriteVerdict::Outcome::kAsExported;
    return verdict;
  }

  RewriteVerdict Equal(RewriteVerdict verdict) const {
    if (verdict.outcome == RewriteVerdict::Outcome::kMended) return verdict;
    if (verdict.probes > 0) verdict.outcome = RewriteVerdict::Outcome::kEqual;
    if (verdict.probes == 0) verdict.reason = why_not_;
    return verdict;
  }

  static std::string Reason(const std::optional<Rewrite>& bad, const Finding& finding) {
    const std::string where =
        StrCat("the logits of ", finding.probe->name,
               " are not those of the graph as it was exported: ", finding.detail);
    return bad ? StrCat(RewriteName(*bad), ": ", where) : where;
  }

  // False where it is left out already.
  static bool LeaveOut(const Rewrite& bad, RewriteVerdict& verdict) {
    std::vector<std::string>& names = bad.rule == bad.pass ? verdict.disabled : verdict.left_out;
    const std::string& name = bad.rule == bad.pass ? bad.pass : bad.rule;
    if (name.empty() || std::ranges::find(names, name) != names.end()) return false;
    names.push_back(name);
    return true;
  }

  absl::StatusOr<Finding> CompareAll(Runnable& runnable, const RowTolerance& tolerance,
                                     const ProbeBudget& budget) {
    Finding finding;
    ProbePace
        pace;  // of this form: the export has one of its own, and runs a text once for all forms
    for (const Probe& probe : ProbesOf(runnable)) {
      const double work = WorkOfBatch(probe);
      // The first tells what the next will take.
      if (pace.work > 0 &&
          !budget.HasRoomFor(reference_.SecondsFor(probe) + pace.SecondsFor(work))) {
        ++finding.skipped;
        continue;
      }
      const auto start = Clock::now();
      const double of_export = reference_.seconds();
      const auto detail = Compare(runnable, probe, tolerance);
      pace.Add(work, SecondsSince(start) - (reference_.seconds() - of_export));
      // That memory is short tells nothing of the rewrites.
      if (absl::IsResourceExhausted(detail.status())) {
        why_not_ = std::string(detail.status().message());
        ++finding.starved;
        continue;
      }
      PF_RETURN_IF_ERROR(detail.status());
      if (!*detail) continue;
      ++finding.compared;
      if ((*detail)->empty() || IsRounding(runnable, probe, tolerance)) continue;
      finding.detail = **detail;
      finding.probe = probe;
      return finding;
    }
    return finding;
  }

  // Nothing if the graph as it was exported does not run on the probe, else how rows differ.
  // ResourceExhausted where either has not the memory to run.
  absl::StatusOr<std::optional<std::string>> Compare(Runnable& runnable, const Probe& probe,
                                                     const RowTolerance& tolerance) {
    std::vector<const LogitRows*> expected;
    for (const ProbeText& text : probe.texts) {
      const auto rows = reference_.Rows(text);
      if (absl::IsResourceExhausted(rows.status())) return rows.status();
      if (!rows.ok()) {
        why_not_ = std::string(rows.status().message());
        return std::optional<std::string>();
      }
      expected.push_back(*rows);
    }
    const auto got = ProbeLogits(runnable, probe);
    if (absl::IsResourceExhausted(got.status())) return got.status();
    if (!got.ok()) {
      return std::optional(StrCat("it does not run: ", StdView(got.status().message())));
    }
    const std::string detail = Difference(expected, *got, tolerance);
    const RowTolerance wider{.largest = kRoundedApart * tolerance.largest};
    if (detail.empty() || !rounds_ || tolerance.l2 > 0 ||
        !Difference(expected, *got, wider).empty() || !IsNoFurther(probe, expected, *got)) {
      return std::optional(detail);
    }
    return std::optional(std::string());
  }

  static std::string Difference(const std::vector<const LogitRows*>& expected,
                                const std::vector<LogitRows>& got, const RowTolerance& tolerance) {
    for (size_t i = 0; i < expected.size(); ++i) {
      std::string detail = RowsDifference(*expected[i], got[i], tolerance);
      if (!detail.empty()) return detail;
    }
    return "";
  }

  // Whether the rows are no further from those of the export in float than its own are, which 16-bit
  // floats round at every node: then no one can tell a wrong rewrite from those roundings.
  bool IsNoFurther(const Probe& probe, const std::vector<const LogitRows*>& expected,
                   const std::vector<LogitRows>& got) {
    if (!in_float_) in_float_ = Reference::InFloatOf(exported_, options_);
    if (!in_float_->ok()) return false;
    double of_export = 0, of_rewritten = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      const auto exact = (*in_float_)->Rows(probe.texts[i]);
      if (!exact.ok()) return false;
      of_export += SquaredDistance(*expected[i], **exact);
      of_rewritten += SquaredDistance(got[i], **exact);
    }
    return std::isfinite(of_export) && of_rewritten <= of_export;
  }

  // Where a graph chooses rows or codes, one text in many has two that are equally good. The same
  // probe with other tokens tells.
  bool IsRounding(Runnable& runnable, const Probe& probe, const RowTolerance& tolerance) {
    if (!chooses_) return false;
    for (int seed = 1; seed <= 2; ++seed) {
      const std::vector<Probe> others = ProbesOf(runnable, seed);
      const auto other = std::ranges::find(others, probe.name, &Probe::name);
      if (other == others.end()) return false;
      const auto detail = Compare(runnable, *other, tolerance);
      if (!detail.ok() || !*detail || !(*detail)->empty()) return false;
    }
    return true;
  }

  // The first rewrite behind which the probe's rows differ; nothing, and one more starved, where
  // memory is too short to tell.
  absl::StatusOr<std::optional<Rewrite>> FirstBad(const EngineOptions& options, bool pages,
                                                  const Finding& finding,
                                                  const RowTolerance& tolerance, int64_t& starved) {
    PipelineOptions pipeline = PagedPipeline(PagedOptions(options));
    pipeline.page = pages;
    const RewriteJudge judge = [&](const Model& after, int64_t) -> absl::StatusOr<std::string> {
      auto runnable = MakeRunnable(after, AsItCame(options));
      if (!runnable.ok()) return std::string(runnable.status().message());
      PF_ASSIGN_OR_RETURN(const std::optional<std::string> detail,
                          Compare(*runnable, *finding.probe, tolerance));
      return detail.value_or("");
    };
    const auto bisection = Bisect(exported_, pipeline, judge);
    if (absl::IsResourceExhausted(bisection.status())) ++starved;
    // Where even the graph alone is wrong, no rewrite is to blame.
    if (!bisection.ok()) return std::optional<Rewrite>();
    return bisection->bad;
  }

  // Windows that become rows are counted from the first token of a sequence.
  ProbePoints PointsOf(const Runnable& runnable) const {
    ProbePoints points = points_;
    if (!runnable.paged) return points;
    for (const CacheGroup& group : runnable.paged->layout().groups()) {
      if (group.ratio > 1) points.positions.clear();
    }
    return points;
  }

  // Those that the graph runs, which may be for short texts alone, and not with every token.
  std::vector<Probe> ProbesOf(const Runnable& runnable, int seed = 0) const {
    std::vector<Probe> probes =
        MakeProbes(PointsOf(runnable), EdgesOf(runnable), vocabulary(), seed);
    if (!runnable.paged) return probes;
    for (Probe& probe : probes) {
      for (ProbeText& text : probe.texts) {
        for (std::vector<int64_t>* tokens : {&text.prompt, &text.following}) {
          for (int64_t& token : *tokens) token = runnable.paged->NextThatRuns(token);
        }
      }
    }
    std::erase_if(probes, [&](const Probe& probe) {
      return std::ranges::any_of(probe.texts, [&](const ProbeText& text) {
        const size_t tokens = text.prompt.size() + text.following.size();
        const int64_t end = text.first_position + static_cast<int64_t>(tokens);
        return !runnable.paged->CheckLength(end).ok();
      });
    });
    return probes;
  }

  int64_t vocabulary() const { return reference_.decoder().vocabulary(); }

  const Model& exported_;
  const EngineOptions& options_;
  ProbeBudget budget_;
  Reference reference_;
  ProbePoints points_;
  RowTolerance computed_;
  bool chooses_;
  bool rounds_;                                        // to 16 bits
  std::optional<absl::StatusOr<Reference>> in_float_;  // made when it is needed
  std::string why_not_;
};

}  // namespace

absl::StatusOr<CheckPaging> ParseCheckPaging(std::string_view name) {
  if (name == "once") return CheckPaging::kOnce;
  if (name == "always") return CheckPaging::kAlways;
  if (name == "never") return CheckPaging::kNever;
  return absl::InvalidArgumentError(
      StrCat("check of paging: expected once, always or never, got \"", name, "\""));
}

std::string RewriteVerdict::Text() const {
  switch (outcome) {
    case Outcome::kEqual:
      return StrCat("the logits of ", probes, " probes are those of the graph as it was exported",
                    skipped > 0 ? StrCat("; there was no time for ", skipped, " more") : "",
                    starved > 0 ? StrCat("; there was no memory for ", starved, " more") : "");
    case Outcome::kMended:
      return StrCat(reason, "; the graph runs without that rewrite");
    case Outcome::kAsExported:
      return StrCat(reason, "; the graph runs as it was exported");
    case Outcome::kUnchecked:
      return StrCat("not compared with the graph as it was exported: ", reason);
  }
  return "";
}

bool HasExportedForm(const Model& model) { return !ReadCacheGroups(model).ok(); }

EngineOptions UnderVerdict(const EngineOptions& options, const RewriteVerdict& verdict) {
  EngineOptions result = options;
  PipelineOptions& pipeline = result.session.pipeline;
  pipeline.left_out.insert(pipeline.left_out.end(), verdict.left_out.begin(),
                           verdict.left_out.end());
  pipeline.disabled.insert(pipeline.disabled.end(), verdict.disabled.begin(),
                           verdict.disabled.end());
  if (verdict.outcome == RewriteVerdict::Outcome::kAsExported) {
    result = AsItCame(result);
    result.on_step = options.on_step;
    result.session.profile = options.session.profile;
  }
  return result;
}

absl::StatusOr<RewriteVerdict> CheckRewrites(const Model& exported, const EngineOptions& options,
                                             Runnable* made, const RewriteCheckOptions& check) {
  const auto start = Clock::now();
  auto reference = Reference::Of(exported, options);
  if (!reference.ok()) {
    RewriteVerdict unchecked;
    unchecked.reason = std::string(reference.status().message());
    return unchecked;
  }
  return Checker(exported, options, check, start, *std::move(reference)).Run(made);
}

absl::StatusOr<int64_t> CompareRewrites(const Model& exported, const EngineOptions& options,
                                        const RewriteCheckOptions& check) {
  const auto start = Clock::now();
  auto reference = Reference::Of(exported, options);
  if (!reference.ok()) {
    return absl::UnimplementedError(std::string(reference.status().message()));
  }
  return Checker(exported, options, check, start, *std::move(reference)).Compare();
}

}  // namespace pagefuse
