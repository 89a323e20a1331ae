// SPDX-License-Identifier: Apache-2.0
// pagefuse check: runs standard ONNX test-case folders and compares.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"
#include "tools/check/conformance.h"
#include "tools/check/expect_case.h"
#include "tools/check/paged_case.h"
#include "tools/check/structure_case.h"
#include "tools/check/testcase.h"
#include "tools/cli/command.h"
#include "tools/cli/output.h"
#include "tools/cli/subcommand.h"

#include "pagefuse/base/new_file.h"
#include "pagefuse/base/short_message.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/registry/registry.h"
#include "pagefuse/runtime/rewrite_check.h"
#include "pagefuse/runtime/session.h"

namespace pagefuse::tools {
namespace {

struct Flags {
  std::vector<std::string> dirs;
  std::string graph;
  std::string report;  // file of the conformance page
  std::optional<double> rtol, atol;
  bool json = false, fuse = false, allow_refused = false, expect = false;
  SessionFlags session;
};

struct Result {
  std::string name;
  Verdict verdict = Verdict::kPassed;
  std::string detail = {};
  std::shared_ptr<Model> model = {};  // null where it could not be read
};

const char* NameOf(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPassed:
      return "passed";
    case Verdict::kFailed:
      return "failed";
    case Verdict::kRefused:
      return "refused";
    case Verdict::kSkipped:
      return "skipped";
    case Verdict::kStructure:
      return "structure";
  }
  return "";
}

bool HasDataSets(const std::string& folder) {
  std::error_code ignored;
  return std::filesystem::exists(std::filesystem::path(folder) / "test_data_set_0", ignored);
}

// Rules from the flags for outputs that the case names none for.
void AddFlagRules(const Flags& flags, TestCase& test_case) {
  if (!flags.rtol && !flags.atol) return;
  for (const Value* output : test_case.model.graph->outputs()) {
    if (test_case.rules.contains(output->name())) continue;
    if (!IsFloatingPoint(output->dtype())) continue;
    CompareRule rule;
    rule.kind = CompareRule::Kind::kAllclose;
    rule.rtol = flags.rtol.value_or(0);
    rule.atol = flags.atol.value_or(0);
    rule.nan_is_equal = true;
    test_case.rules[output->name()] = rule;
  }
}

absl::Status RunCase(TestCase test_case, const Flags& flags, const SessionOptions& options,
                     std::vector<std::string>& notes) {
  if (flags.fuse && IsDecoderCase(test_case)) {
    return CheckPagedCase(std::move(test_case), options, &notes);
  }
  if (flags.fuse && test_case.whole_model) notes.push_back("fused, but not over a paged cache");
  std::unique_ptr<Session> session;  // one for all data sets of the case
  auto run =
      [&](const Model& model,
          const std::map<std::string, Tensor>& feeds) -> absl::StatusOr<std::vector<Tensor>> {
    if (!session) {
      PF_ASSIGN_OR_RETURN(session, Session::Create(model.Clone(), options));
      PrintUnfused(session->report());
    }
    return session->Run(feeds);
  };
  return CheckTestCase(test_case, run, &notes);
}

Result With(Result result, Verdict verdict, std::string detail) {
  result.verdict = verdict;
  result.detail = std::move(detail);
  return result;
}

// Unimplemented says that nothing ran and why; anything else is a failure.
Result WithError(Result result, const absl::Status& status) {
  const bool refused = status.code() == absl::StatusCode::kUnimplemented;
  return With(std::move(result), refused ? Verdict::kRefused : Verdict::kFailed,
              ShortMessage(StdView(status.message())));
}

Result CheckData(const std::string& folder, const Flags& flags, SessionOptions options,
                 Result result) {
  auto test_case = LoadTestCase(folder);
  if (!test_case.ok()) return WithError(std::move(result), test_case.status());
  if (const absl::Status fits = CheckDataFits(*test_case); !fits.ok()) {
    return WithError(std::move(result), fits);
  }
  AddFlagRules(flags, *test_case);
  options.pipeline.page = flags.fuse && IsDecoderCase(*test_case);
  const bool compares = HasExpectedOutputs(*test_case) || !test_case->expected_error.empty();
  std::vector<std::string> notes;
  const absl::Status status = RunCase(*std::move(test_case), flags, options, notes);
  // A value that asks for what is not computed (training) is refused by the node that reads it.
  if (!status.ok()) return WithError(std::move(result), status);
  if (!compares) {
    return With(std::move(result), Verdict::kSkipped,
                "it runs, but there are no output files to compare with");
  }
  return With(std::move(result), Verdict::kPassed, absl::StrJoin(notes, "; "));
}

// Reference data is of the graph's definition: activations that it allows to round to int8
// (accuracy_level 4) stay in float, unless --kernel or --weights say otherwise.
void KeepActivationsInFloat(SessionOptions& options) {
  if (options.pipeline.options.contains("weights")) return;
  for (const char* op : {"MatMulNBits", "GatedLinear", "GroupedMatMul", "SplitLinear"}) {
    options.force_kernel.insert({op, "hwy"});
  }
}

Result CheckFolder(const std::string& folder, const Flags& flags) {
  Result result{.name = folder};
  auto options = MakeSessionOptions(flags.session);
  if (!options.ok()) return WithError(std::move(result), options.status());
  options->optimise = flags.fuse;
  options->pipeline.page = false;
  KeepActivationsInFloat(*options);
  if (!HasDataSets(folder)) {
    const absl::Status status = CheckStructure(folder);
    if (!status.ok()) return WithError(std::move(result), status);
    return With(std::move(result), Verdict::kStructure,
                "types and shapes of all values are known; there are no data sets to compare with");
  }
  const auto model = LoadCaseModel(folder);
  if (!model.ok()) return WithError(std::move(result), model.status());
  result.model = std::make_shared<Model>(model->Clone());
  // Said before anything is read or runs.
  if (const absl::Status known = VerifyOps(*model); !known.ok()) {
    return WithError(std::move(result), known);
  }
  return CheckData(folder, flags, *std::move(options), std::move(result));
}

// A model that comes without data sets: what the passes make of it, and the graph as it was exported.
Result CheckModel(const std::string& path, const Flags& flags) {
  Result result{.name = path};
  const auto options = MakeSessionOptions(flags.session);
  if (!options.ok()) return WithError(std::move(result), options.status());
  auto model = ReadModel(ModelFlags{path, flags.graph});
  if (!model.ok()) return WithError(std::move(result), model.status());
  EngineOptions engine;
  engine.session = *options;
  RewriteCheckOptions check;
  check.tolerance = flags.rtol;
  const auto probes = CompareRewrites(*model, engine, check);
  result.model = std::make_shared<Model>(*std::move(model));
  if (!probes.ok()) return WithError(std::move(result), probes.status());
  return With(std::move(result), Verdict::kPassed,
              StrCat("paged, the logits of ", *probes,
                     " probes are those of the graph as it was exported"));
}

// Whether --fuse takes the path for a model: a graph, or a folder where nothing is to compare with.
bool IsModelAlone(const std::string& path, const std::vector<std::string>& folders) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return true;
  if (std::filesystem::exists(std::filesystem::path(path) / "initializers.json", ignored))
    return false;
  return std::none_of(folders.begin(), folders.end(), HasDataSets);
}

// Cases by verdict. What was refused and what compared nothing are skipped, both.
class Tally {
 public:
  void Add(Verdict verdict) { ++counts_[static_cast<int>(verdict)]; }
  int passed() const { return counts_[static_cast<int>(Verdict::kPassed)]; }
  int failed() const { return counts_[static_cast<int>(Verdict::kFailed)]; }
  int skipped() const {
    return counts_[static_cast<int>(Verdict::kRefused)] +
           counts_[static_cast<int>(Verdict::kSkipped)];
  }
  int structure() const { return counts_[static_cast<int>(Verdict::kStructure)]; }

 private:
  int counts_[5] = {0, 0, 0, 0, 0};
};

void PrintTally(const Tally& tally, const nlohmann::ordered_json& cases, const Flags& flags) {
  if (!flags.json) {
    std::cout << tally.passed() << " passed, " << tally.failed() << " failed, " << tally.skipped()
              << " skipped";
    if (tally.structure() > 0) std::cout << ", " << tally.structure() << " by structure alone";
    std::cout << "\n";
    return;
  }
  const nlohmann::ordered_json found = {{"cases", cases},
                                        {"passed", tally.passed()},
                                        {"failed", tally.failed()},
                                        {"skipped", tally.skipped()},
                                        {"structure", tally.structure()}};
  std::cout << JsonText(JsonResult("check", flags.dirs, found), 2) << "\n";
}

// What the graphs of cases with an expect.json fuse to, and whether their numbers stay.
absl::StatusOr<int> CheckExpectations(const Flags& flags) {
  std::vector<ExpectResult> results;
  bool right = true;
  PipelineOptions pipeline{.disabled = flags.session.disabled_passes};
  PF_RETURN_IF_ERROR(ReadPassOptions(flags.session.options, pipeline));
  for (const std::string& dir : flags.dirs) {
    for (const std::string& folder : FindTestCases(dir)) {
      if (!HasExpectation(folder)) continue;
      PF_ASSIGN_OR_RETURN(results.emplace_back(), RunExpectCase(folder, pipeline));
      right = right && results.back().fusion.ok() && results.back().equality.ok();
    }
  }
  if (results.empty()) {
    return absl::NotFoundError(
        StrCat("no case with an expect.json below \"", absl::StrJoin(flags.dirs, "\", \""), "\""));
  }
  std::cout << ExpectReport(results);
  return right ? kDone : kWrongInput;
}

absl::StatusOr<int> Check(const Flags& flags) {
  if (flags.expect) return CheckExpectations(flags);
  // Said once, not of each case.
  PF_RETURN_IF_ERROR(ReadDeviceFlag(flags.session.device).status());
  Tally tally;
  if (!flags.report.empty()) PF_RETURN_IF_ERROR(CheckNewFile(flags.report));
  Conformance conformance;
  nlohmann::ordered_json cases = nlohmann::ordered_json::array();
  const auto add = [&](const Result& result) {
    tally.Add(result.verdict);
    conformance.Add(result.model.get(), result.verdict);
    if (flags.json) {
      cases.push_back(
          {{"case", result.name}, {"result", NameOf(result.verdict)}, {"detail", result.detail}});
      return;
    }
    std::cout << NameOf(result.verdict) << " " << result.name
              << (result.detail.empty() ? "" : ": " + result.detail) << std::endl;
  };
  for (const std::string& dir : flags.dirs) {
    const std::vector<std::string> folders = FindTestCases(dir);
    if (flags.fuse && IsModelAlone(dir, folders)) {
      add(CheckModel(dir, flags));
    } else if (folders.empty()) {
      return absl::NotFoundError(StrCat("no test case below \"", dir, "\""));
    } else {
      for (const std::string& folder : folders) add(CheckFolder(folder, flags));
    }
  }
  if (!flags.report.empty()) {
    PF_RETURN_IF_ERROR(WriteWholeFile(flags.report, conformance.Page()));
  }
  PrintTally(tally, cases, flags);
  return tally.failed() > 0 || (tally.skipped() > 0 && !flags.allow_refused) ? kWrongInput : kDone;
}

}  // namespace

void AddCheckCommand(Command app, Outcome& outcome) {
  auto flags = std::make_shared<Flags>();
  Command command = AddSubcommand(
      app, outcome, {"check", "runs test-case folders (model.onnx, test_data_set_N) and compares"},
      flags, Check);
  command.AddArguments("dirs", flags->dirs, "folders, searched for cases; with --fuse models, too")
      .Required();
  AddGraphFlag(command, flags->graph);
  // Both, as text: docs/check.md says the same.
  command.Footer(
      "Where a case names no rule, floats may differ by\n"
      "  1e-3 relative, 1e-7 absolute   float and double\n"
      "  2 units in the last place      float16 and bfloat16, single ops\n"
      "  1e-2 absolute, 2^-9 relative   graphs of several nodes that compute in float16\n"
      "  8e-2 absolute, 2^-6 relative   graphs of several nodes that compute in bfloat16\n"
      "and by 1e-4 absolute at least where there is a config.json, as decoders have. Everything "
      "else must be equal. Rows of padding (attention_mask) are not compared. A case without "
      "output files is skipped. Status 1 if a case failed, and if one was refused or skipped unless "
      "--allow-refused.");
  command.AddTolerance("--rtol", flags->rtol, "relative tolerance where a case names no rule");
  command.AddTolerance("--atol", flags->atol, "absolute tolerance where a case names no rule");
  command.AddFlag(
      "--fuse", flags->fuse,
      "run the passes first; decoders run through the paged cache, and one without test "
      "data is compared with the graph as it was exported");
  command.AddFlag("--expect", flags->expect,
                  "cases with an expect.json: recall, precision and equality of fusions");
  command.AddFlag("--allow-refused", flags->allow_refused,
                  "refused and skipped cases do not fail the command");
  command.AddText("--report", flags->report, "writes passed and refused cases by op, Markdown");
  command.AddFlag("--json", flags->json, "machine-readable output");
  AddSessionFlags(command, flags->session);
}

}  // namespace pagefuse::tools
