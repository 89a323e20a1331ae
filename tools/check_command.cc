// pagefuse check: runs standard ONNX test-case folders and compares.
#include <filesystem>
#include <iostream>
#include <memory>

#include "nlohmann/json.hpp"
#include "tools/command.h"
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
  double rtol = -1, atol = -1;
  bool json = false, fuse = false, allow_refused = false;
  SessionFlags session;
};

enum class Verdict { kPassed, kFailed, kRefused };

struct Result {
  std::string name;
  Verdict verdict = Verdict::kPassed;
  std::string detail;
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

absl::Status RunCase(TestCase test_case, const Flags& flags, const SessionOptions& options) {
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
  return CheckTestCase(test_case, run);
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
  if (!HasDataSets(folder)) {
    const absl::Status status = CheckStructure(folder);
    if (!status.ok()) return fail(status);
    result.detail = "structure alone: there are no data sets";
    return result;
  }
  auto test_case = LoadTestCase(folder);
  if (!test_case.ok()) {
    if (test_case.status().code() != absl::StatusCode::kUnimplemented)
      return fail(test_case.status());
    result.verdict = Verdict::kRefused;
    result.detail = std::string(StdView(test_case.status().message()));
    return result;
  }
  // Said before anything runs.
  if (const absl::Status known = VerifyOps(test_case->model); !known.ok()) {
    result.verdict = Verdict::kRefused;
    result.detail = std::string(StdView(known.message()));
    return result;
  }
  AddFlagRules(flags, *test_case);
  if (flags.fuse && IsDecoderCase(*test_case)) options->pipeline.page = true;
  const absl::Status status = RunCase(*std::move(test_case), flags, *options);
  return status.ok() ? result : fail(status);
}

int Check(const Flags& flags, Outcome& outcome) {
  int counts[3] = {0, 0, 0};
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
      if (flags.json) {
        json.push_back(
            {{"case", result.name}, {"result", NameOf(result.verdict)}, {"detail", result.detail}});
        continue;
      }
      std::cout << NameOf(result.verdict) << " " << result.name
                << (result.detail.empty() ? "" : ": " + result.detail) << std::endl;
    }
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
  command->add_flag("--allow-refused", flags->allow_refused,
                    "refused cases do not fail the command");
  command->add_flag("--json", flags->json, "machine-readable output");
  AddSessionFlags(*command, flags->session);
  command->callback([flags, &outcome] { outcome.exit_code = Check(*flags, outcome); });
}

}  // namespace pagefuse::tools
