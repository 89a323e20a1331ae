// pagefuse check: runs standard ONNX test-case folders and compares.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>

#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"
#include "tools/command.h"
#include "tools/conformance.h"
#include "tools/expect_case.h"
#include "tools/paged_case.h"
#include "tools/structure_case.h"
#include "tools/testcase.h"

#include "pagefuse/ir/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/ops/registry.h"
#include "pagefuse/runtime/session.h"

namespace pagefuse::tools {
namespace {

struct Flags {
  std::vector<std::string> dirs;
  std::string report;  // file of the conformance page
  double rtol = -1, atol = -1;
  bool json = false, fuse = false, allow_refused = false, expect = false;
  SessionFlags session;
};

struct Result {
  std::string name;
  Verdict verdict = Verdict::kPassed;
  std::string detail;
  std::shared_ptr<Model> model = {};  // null where it could not be read
};

const char* NameOf(Verdict verdict) {
  if (verdict == Verdict::kPassed) return "passed";
  return verdict == Verdict::kFailed ? "failed" : "refused";
}

bool HasDataSets(const std::string& folder) {
  std::error_code ignored;
  return std::filesystem::exists(std::filesystem::path(folder) / "test_data_set_0", ignored);
}

// Rules from the flags for outputs that the case names none for.
void AddFlagRules(const Flags& flags, TestCase& test_case) {
  if (flags.rtol < 0 && flags.atol < 0) return;
  for (const Value* output : test_case.model.graph->outputs()) {
    if (test_case.rules.contains(output->name())) continue;
    if (!IsFloatingPoint(output->dtype())) continue;
    CompareRule rule;
    rule.kind = CompareRule::Kind::kAllclose;
    rule.rtol = std::max(flags.rtol, 0.0);
    rule.atol = std::max(flags.atol, 0.0);
    test_case.rules[output->name()] = rule;
  }
}

absl::Status RunCase(TestCase test_case, const Flags& flags, const SessionOptions& options,
                     std::vector<std::string>& notes) {
  if (flags.fuse && IsDecoderCase(test_case)) return CheckPagedCase(std::move(test_case), options);
  std::unique_ptr<Session> session;  // one for all data sets of the case
  auto run =
      [&](const Model& model,
          const std::map<std::string, Tensor>& feeds) -> absl::StatusOr<std::vector<Tensor>> {
    if (!session) {
      PF_ASSIGN_OR_RETURN(session, Session::Create(model.Clone(), options));
    }
    return session->Run(feeds);
  };
  return CheckTestCase(test_case, run, &notes);
}

// A case whose data has other dims than its model declares says nothing of anyone: Unimplemented.
// Cases that expect an error are meant to be wrong.
absl::Status CheckDataFits(const TestCase& test_case) {
  if (!test_case.expected_error.empty()) return absl::OkStatus();
  for (const TestDataSet& data_set : test_case.data_sets) {
    for (const Value* input : test_case.model.graph->inputs()) {
      const auto feed = data_set.feeds.find(input->name());
      const auto dims = input->shape() ? input->shape()->constant() : std::nullopt;
      if (feed == data_set.feeds.end() || !dims || *dims == feed->second.dims()) continue;
      return absl::UnimplementedError(StrCat("the case contradicts itself: input \"", input->name(),
                                             "\" is declared as ", DimsToString(*dims),
                                             ", its data is ", DimsToString(feed->second.dims())));
    }
  }
  return absl::OkStatus();
}

Result CheckFolder(const std::string& folder, const Flags& flags) {
  Result result{.name = folder, .verdict = Verdict::kPassed, .detail = ""};
  auto fail = [&](const absl::Status& status) {
    result.verdict = Verdict::kFailed;
    result.detail = std::string(StdView(status.message()));
    return result;
  };
  auto options = MakeSessionOptions(flags.session);
  if (!options.ok()) return fail(options.status());
  options->optimise = flags.fuse;
  options->pipeline.page = false;
  auto refuse = [&](const absl::Status& status) {
    if (status.code() != absl::StatusCode::kUnimplemented) return fail(status);
    result.verdict = Verdict::kRefused;
    result.detail = std::string(StdView(status.message()));
    return result;
  };
  if (!HasDataSets(folder)) {
    const absl::Status status = CheckStructure(folder);
    if (!status.ok()) return refuse(status);
    result.detail = "structure alone: there are no data sets";
    return result;
  }
  const auto model = LoadCaseModel(folder);
  if (!model.ok()) return refuse(model.status());
  result.model = std::make_shared<Model>(model->Clone());
  // Said before anything is read or runs.
  if (const absl::Status known = VerifyOps(*model); !known.ok()) return refuse(known);
  auto test_case = LoadTestCase(folder);
  if (!test_case.ok()) return refuse(test_case.status());
  if (const absl::Status fits = CheckDataFits(*test_case); !fits.ok()) return refuse(fits);
  AddFlagRules(flags, *test_case);
  if (flags.fuse && IsDecoderCase(*test_case)) options->pipeline.page = true;
  std::vector<std::string> notes;
  const absl::Status status = RunCase(*std::move(test_case), flags, *options, notes);
  result.detail = absl::StrJoin(notes, "; ");
  // A value that asks for what is not computed (training) is refused by the node that reads it.
  return status.ok() ? result : refuse(status);
}

absl::Status WriteReport(const std::string& path, const Conformance& conformance) {
  std::ofstream file(path);
  file << conformance.Page();
  file.close();
  if (file) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat("\"", path, "\" cannot be written"));
}

// What the graphs of cases with an expect.json fuse to, and whether their numbers stay.
int CheckExpectations(const Flags& flags, Outcome& outcome) {
  std::vector<ExpectResult> results;
  bool right = true;
  for (const std::string& dir : flags.dirs) {
    for (const std::string& folder : FindTestCases(dir)) {
      if (!HasExpectation(folder)) continue;
      const auto result = RunExpectCase(folder);
      outcome.status = result.status();
      if (!result.ok()) return kWrongInput;
      right = right && result->fusion.ok() && result->equality.ok();
      results.push_back(*result);
    }
  }
  std::cout << ExpectReport(results);
  return right && !results.empty() ? kDone : kWrongInput;
}

int Check(const Flags& flags, Outcome& outcome) {
  if (flags.expect) return CheckExpectations(flags, outcome);
  int counts[3] = {0, 0, 0};
  Conformance conformance;
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const std::string& dir : flags.dirs) {
    const std::vector<std::string> folders = FindTestCases(dir);
    if (folders.empty()) {
      outcome.status = absl::NotFoundError(StrCat("no test case below \"", dir, "\""));
      return kWrongInput;
    }
    for (const std::string& folder : folders) {
      const Result result = CheckFolder(folder, flags);
      ++counts[static_cast<int>(result.verdict)];
      conformance.Add(result.model.get(), result.verdict);
      if (flags.json) {
        json.push_back(
            {{"case", result.name}, {"result", NameOf(result.verdict)}, {"detail", result.detail}});
        continue;
      }
      std::cout << NameOf(result.verdict) << " " << result.name
                << (result.detail.empty() ? "" : ": " + result.detail) << std::endl;
    }
  }
  if (!flags.report.empty()) {
    outcome.status = WriteReport(flags.report, conformance);
    if (!outcome.status.ok()) return kWrongInput;
  }
  if (flags.json) {
    std::cout << nlohmann::ordered_json{{"cases", json},
                                        {"passed", counts[0]},
                                        {"failed", counts[1]},
                                        {"skipped", counts[2]}}
                     .dump(2)
              << "\n";
  } else {
    std::cout << counts[0] << " passed, " << counts[1] << " failed, " << counts[2] << " skipped\n";
  }
  return counts[1] > 0 || (counts[2] > 0 && !flags.allow_refused) ? kWrongInput : kDone;
}

}  // namespace

void AddCheckCommand(CLI::App& app, Outcome& outcome) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand(
      "check", "runs test-case folders (model.onnx, test_data_set_N) and compares");
  command->add_option("dirs", flags->dirs, "folders, searched for cases")->required();
  command->add_option("--rtol", flags->rtol, "relative tolerance where a case names no rule");
  command->add_option("--atol", flags->atol, "absolute tolerance where a case names no rule");
  command->add_flag("--fuse", flags->fuse,
                    "run the passes first; decoders run through the paged cache");
  command->add_flag("--expect", flags->expect,
                    "cases with an expect.json: recall, precision and equality of fusions");
  command->add_flag("--allow-refused", flags->allow_refused,
                    "refused cases do not fail the command");
  command->add_option("--report", flags->report, "writes passed and refused cases by op, Markdown");
  command->add_flag("--json", flags->json, "machine-readable output");
  AddSessionFlags(*command, flags->session);
  command->callback([flags, &outcome] { outcome.exit_code = Check(*flags, outcome); });
}

}  // namespace pagefuse::tools
