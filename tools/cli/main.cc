// SPDX-License-Identifier: Apache-2.0
// pagefuse: runs exported decoder graphs over a paged KV cache.
#include <csignal>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <vector>

#include "tools/cli/command.h"
#include "tools/cli/plugins.h"
#include "tools/cli/progress_line.h"
#include "tools/cli/verbosity.h"
#include "tools/cli/version.h"

#include "pagefuse/base/short_message.h"
#include "pagefuse/base/str_cat.h"

namespace {

int ExitCodeOf(const absl::Status& status) {
  return status.code() == absl::StatusCode::kInternal ? pagefuse::tools::kOurFault
                                                      : pagefuse::tools::kWrongInput;
}

// What to do next, where that is known of a failure.
std::string HintFor(const absl::Status& status, const std::string& command) {
  const std::string_view message = pagefuse::StdView(status.message());
  const auto has = [message](std::string_view text) {
    return message.find(text) != std::string_view::npos;
  };
  if (status.code() == absl::StatusCode::kInternal) {
    return "this is a fault of pagefuse; a report of it needs the command line and what `pagefuse "
           "--version` prints";
  }
  if (status.code() == absl::StatusCode::kResourceExhausted) {
    return "--weights int8, a quantised --kv-cache and fewer --cache-tokens take less memory; "
           "--max-memory sets the limit";
  }
  if (has("expected a folder or a graph, got nothing")) {
    return "a model is a folder with config.json and model.onnx or onnx/, or the graph alone";
  }
  if (has("there is no pass ")) return "pagefuse opt --list-passes lists them";
  if (has("there is no op ")) return "pagefuse ops lists them";
  if (status.code() == absl::StatusCode::kInvalidArgument &&
      (message.starts_with("--") || message.starts_with("option "))) {
    return "pagefuse " + command + " --help tells what it takes";
  }
  const bool of_model = command != "inspect" && command != "ops" && command != "plugin";
  if (status.code() == absl::StatusCode::kUnimplemented && of_model) {
    return "pagefuse inspect tells of a model what runs and what does not";
  }
  return "";
}

}  // namespace

int main(int argc, char** argv) {
  using namespace pagefuse::tools;  // NOLINT(google-build-using-namespace)
  // A file that may not grow further is an error of its writer, which then leaves nothing of it.
  std::signal(SIGXFSZ, SIG_IGN);
  Outcome outcome;
  std::vector<std::string> plugins;
  bool is_quiet = false, is_verbose = false;
  const Program program = {
      .description =
          "pagefuse rewrites exported decoder graphs into fused ops over a paged KV "
          "cache, and runs them",
      .version = VersionText(),
      .declare =
          [&outcome](Command app) {
            for (auto* add : {AddInspectCommand,   AddOptCommand,        AddRunCommand,
                              AddCheckCommand,     AddGenerateCommand,   AddChatCommand,
                              AddServeCommand,     AddBatchCommand,      AddBenchCommand,
                              AddCalibrateCommand, AddTokenizeCommand,   AddDetokenizeCommand,
                              AddOpsCommand,       AddOrtCommand,        AddPluginCommand,
                              AddExplainCommand,   AddVerifyCommand,     AddBisectCommand,
                              AddReduceCommand,    AddDiffCommand,       AddReportCommand,
                              AddExpectCommand,    AddCompletionCommand, AddManCommand}) {
              add(app, outcome);
            }
          },
      .add_common =
          [&](Command command) {
            AddPlugins(command, plugins);
            const Option quiet = command.AddFlag("-q,--quiet", is_quiet, "no figures and notes");
            command.AddFlag("-v,--verbose", is_verbose, "all figures").Excludes(quiet);
          },
      .prepare =
          [&] {
            if (is_quiet) ChosenVerbosity() = Verbosity::kQuiet;
            if (is_verbose) ChosenVerbosity() = Verbosity::kVerbose;
            outcome.status = LoadPlugins(plugins);
            return outcome.status.ok();
          },
  };
  try {
    const ProgressLine progress;
    if (!RunCommandLine(program, argc, argv)) return kWrongInput;
  } catch (const std::bad_alloc&) {
    outcome.status = absl::ResourceExhaustedError("out of memory");
  } catch (const std::exception& error) {
    outcome.status = absl::InternalError(error.what());
  }
  // A screen is a file like others: what did not get there was not done.
  if (outcome.status.ok() && !std::cout.flush()) {
    outcome.status = absl::InvalidArgumentError("cannot write to standard output");
  }
  if (!outcome.status.ok()) {
    std::cerr << "pagefuse: " << pagefuse::ShortMessage(pagefuse::StdView(outcome.status.message()))
              << "\n";
    const std::string hint = HintFor(outcome.status, argc > 1 ? argv[1] : "");
    if (!hint.empty()) std::cerr << "hint: " << hint << "\n";
    return ExitCodeOf(outcome.status);
  }
  return outcome.exit_code;
}
