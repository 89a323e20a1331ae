// SPDX-License-Identifier: Apache-2.0
#include "tools/author/shell_check.h"

#include <cstdio>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "tools/cli/temporary_folder.h"
#include <sys/wait.h>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/passes/pipeline/pipeline.h"

namespace pagefuse::tools {
namespace {

absl::Status Write(const Model& model, const std::string& path, bool exports) {
  Model copy = model.Clone();
  if (exports) PF_RETURN_IF_ERROR(RunPipeline(copy, {.passes = ExportStage()}).status());
  return SaveModel(copy, path);
}

}  // namespace

absl::Status CheckShellCommand(const std::string& command) {
  if (absl::StrContains(command, "{}")) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat("--check: expected a command with {} for the model's file, got \"", command, "\""));
}

absl::StatusOr<std::optional<std::string>> RunShellCheck(const std::string& command,
                                                         const Model& model, bool exports) {
  const TemporaryFolder folder;
  if (folder.path().empty()) return absl::InvalidArgumentError("cannot make a temporary folder");
  const std::string path = (folder.path() / "model.onnx").string();
  if (const absl::Status written = Write(model, path, exports); !written.ok()) {
    return std::optional<std::string>(std::string(StdView(written.message())));
  }
  const std::string line =
      StrCat("{ ", absl::StrReplaceAll(command, {{"{}", StrCat("'", path, "'")}}), "\n} 2>&1");
  // The user's own command, as the user wrote it.
  FILE* pipe = popen(line.c_str(), "r");  // NOLINT(cert-env33-c)
  if (pipe == nullptr) return absl::InvalidArgumentError("cannot run the command of --check");
  std::string printed;
  char buffer[4096];
  while (const size_t count = std::fread(buffer, 1, sizeof(buffer), pipe)) {
    printed.append(buffer, count);
  }
  const int status = pclose(pipe);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return std::optional<std::string>();
  // The shell's word for a command that is not there.
  constexpr int kNotFound = 127;
  std::string first = printed.substr(0, printed.find('\n'));
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNotFound) {
    return absl::InvalidArgumentError(StrCat("--check: ", first));
  }
  first = absl::StrReplaceAll(first, {{path, "MODEL"}});
  if (first.empty()) first = StrCat("status ", WIFEXITED(status) ? WEXITSTATUS(status) : status);
  return std::optional<std::string>(first);
}

}  // namespace pagefuse::tools
