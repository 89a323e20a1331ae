// What the subcommands of `pagefuse` share: registration, results, small output helpers.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"

#include "pagefuse/ir/model.h"
#include "pagefuse/ir/onnx_io.h"
#include "pagefuse/passes/pipeline.h"
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

void AddInspectCommand(CLI::App& app, Outcome& outcome);
void AddOptCommand(CLI::App& app, Outcome& outcome);
void AddRunCommand(CLI::App& app, Outcome& outcome);
void AddCheckCommand(CLI::App& app, Outcome& outcome);
void AddGenerateCommand(CLI::App& app, Outcome& outcome);
void AddOpsCommand(CLI::App& app, Outcome& outcome);

// An option that takes one value each time it is given, or several with commas between them; what
// follows belongs to something else.
CLI::Option* AddList(CLI::App& command, const std::string& name, std::vector<std::string>& values,
                     const std::string& description);

// The numbers that an option takes, both ends included.
struct Bounds {
  int64_t least = 0;
  int64_t most = std::numeric_limits<int64_t>::max();
};
inline constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();

// "expected 0 to 1024, got "-1"" unless the text is an integer within the bounds.
std::string CheckNumber(Bounds bounds, const std::string& text);

// An option of an integer type, or an optional one.
template <typename Number>
CLI::Option* AddNumber(CLI::App& command, const std::string& name, Number& value, Bounds bounds,
                       const std::string& description) {
  return command.add_option(name, value, description)->check([bounds](const std::string& text) {
    return CheckNumber(bounds, text);
  });
}

// The same for a finite number that is not negative: a tolerance.
CLI::Option* AddTolerance(CLI::App& command, const std::string& name, std::optional<double>& value,
                          const std::string& description);

// Flags that every command with a session takes.
struct SessionFlags {
  std::string weights = "float32";
  int threads = 0;
  uint64_t max_memory = 0;  // bytes, 0 for what SessionOptions says
  bool read_weights = false;
  std::vector<std::string> disabled_passes;
  std::vector<std::string> kernels;  // "MatMul=reference"
};
void AddSessionFlags(CLI::App& command, SessionFlags& flags);
// Of those that load the model by SessionOptions.
void AddLoadFlags(CLI::App& command, SessionFlags& flags);
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
