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

#include "pagefuse/base/short_message.h"
#include "pagefuse/base/str_cat.h"

namespace {

int ExitCodeOf(const absl::Status& status) {
  return status.code() == absl::StatusCode::kInternal ? pagefuse::tools::kOurFault
                                                      : pagefuse::tools::kWrongInput;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace pagefuse::tools;  // NOLINT(google-build-using-namespace)
  // A file that may not grow further is an error of its writer, which then leaves nothing of it.
  std::signal(SIGXFSZ, SIG_IGN);
  Outcome outcome;
  std::vector<std::string> plugins;
  const Program program = {
      .description =
          "pagefuse rewrites exported decoder graphs into fused ops over a paged KV "
          "cache, and runs them",
      .version = "pagefuse " PAGEFUSE_VERSION,
      .declare =
          [&outcome](Command app) {
            AddInspectCommand(app, outcome);
            AddOptCommand(app, outcome);
            AddRunCommand(app, outcome);
            AddCheckCommand(app, outcome);
            AddGenerateCommand(app, outcome);
            AddBenchCommand(app, outcome);
            AddCalibrateCommand(app, outcome);
            AddTokenizeCommand(app, outcome);
            AddDetokenizeCommand(app, outcome);
            AddOpsCommand(app, outcome);
            AddOrtCommand(app, outcome);
            AddPluginCommand(app, outcome);
            AddExplainCommand(app, outcome);
            AddVerifyCommand(app, outcome);
            AddBisectCommand(app, outcome);
            AddReduceCommand(app, outcome);
            AddDiffCommand(app, outcome);
            AddReportCommand(app, outcome);
            AddExpectCommand(app, outcome);
          },
      .add_common = [&plugins](Command command) { AddPlugins(command, plugins); },
      .prepare =
          [&plugins, &outcome] {
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
    return ExitCodeOf(outcome.status);
  }
  return outcome.exit_code;
}
