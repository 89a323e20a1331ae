// SPDX-License-Identifier: Apache-2.0
// What the subcommands of `pagefuse` share: registration, results, and small helpers for output.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "tools/cli/command_line.h"
#include "tools/cli/device_flag.h"
#include "tools/cli/weight_flags.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/passes/pipeline/pipeline.h"
#include "pagefuse/runtime/rewrite_check.h"
#include "pagefuse/runtime/session.h"

namespace pagefuse::tools {

// Exit codes: done; the input is wrong (a bad file, a failed check); our own fault.
inline constexpr int kDone = 0;
inline constexpr int kWrongInput = 1;
inline constexpr int kOurFault = 2;

// What the chosen subcommand returned.
struct Outcome {
  absl::Status status;
  int exit_code = kDone;  // used if the status is OK
};

void AddInspectCommand(Command app, Outcome& outcome);
void AddOptCommand(Command app, Outcome& outcome);
void AddRunCommand(Command app, Outcome& outcome);
void AddCheckCommand(Command app, Outcome& outcome);
void AddGenerateCommand(Command app, Outcome& outcome);
void AddChatCommand(Command app, Outcome& outcome);
void AddServeCommand(Command app, Outcome& outcome);
void AddBatchCommand(Command app, Outcome& outcome);
void AddBenchCommand(Command app, Outcome& outcome);
void AddCalibrateCommand(Command app, Outcome& outcome);
void AddTokenizeCommand(Command app, Outcome& outcome);
void AddDetokenizeCommand(Command app, Outcome& outcome);
void AddOpsCommand(Command app, Outcome& outcome);
void AddOrtCommand(Command app, Outcome& outcome);
void AddPluginCommand(Command app, Outcome& outcome);
void AddBisectCommand(Command app, Outcome& outcome);
void AddDiffCommand(Command app, Outcome& outcome);
void AddExpectCommand(Command app, Outcome& outcome);
void AddExplainCommand(Command app, Outcome& outcome);
void AddReportCommand(Command app, Outcome& outcome);
void AddReduceCommand(Command app, Outcome& outcome);
void AddVerifyCommand(Command app, Outcome& outcome);
void AddCompletionCommand(Command app, Outcome& outcome);
void AddManCommand(Command app, Outcome& outcome);

// Flags that every command with a session takes.
struct SessionFlags {
  WeightFlags weights;
  int threads = 0;
  std::string device = kHostDevice;
  bool no_graphs = false;
  uint64_t max_memory = 0;  // bytes, 0 for what SessionOptions says
  bool read_weights = false;
  std::vector<std::string> disabled_passes;
  std::vector<std::string> kernels;  // "MatMul=reference"
  std::vector<std::string> options;  // "logits=all"
  std::vector<std::string> rules;    // files
};
void AddSessionFlags(Command command, SessionFlags& flags);
// All of them but those of weights.
void AddRunFlags(Command command, SessionFlags& flags);
// Of those that load the model by SessionOptions.
void AddLoadFlags(Command command, SessionFlags& flags);
// Options of passes, as name=value.
void AddPassOptions(Command command, std::vector<std::string>& options);
// InvalidArgument naming a text that is no name=value.
absl::Status ReadPassOptions(const std::vector<std::string>& texts, PipelineOptions& options);
// Files of rules as text.
void AddRuleFiles(Command command, std::vector<std::string>& rules);
absl::Status ReadRuleFiles(const std::vector<std::string>& paths, PipelineOptions& options);
// On the error stream a line for each place that no fused op took up (PipelineReport::unfused).
// Without `attention` not for attention, of which the user was told.
void PrintUnfused(const PipelineReport& report, bool attention = true);
// On the error stream what the comparison of a rewritten graph with its export found, unless they are equal.
void PrintVerdict(const RewriteVerdict& verdict);
// InvalidArgument naming the flag and the values that it takes.
absl::StatusOr<SessionOptions> MakeSessionOptions(const SessionFlags& flags);

// A model from a file, or from standard input if the path is "-"; protobuf or text, as the content
// says.
absl::StatusOr<Model> ReadModel(const std::string& path, const LoadOptions& options = {});

// Peak resident memory of this process in bytes; 0 where the system does not tell.
int64_t PeakMemoryBytes();
// "27.3 MiB"
std::string HumanBytes(int64_t bytes);
// "RMSNormalization x37, GatedLinear x6": counts of the ops of the graph in the given domain.
std::map<std::string, int> CountOps(const Graph& graph, std::string_view domain);
std::string JoinCounts(const std::map<std::string, int>& counts);

}  // namespace pagefuse::tools
