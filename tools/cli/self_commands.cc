// SPDX-License-Identifier: Apache-2.0
// pagefuse completion and pagefuse man: what shells and readers of manuals know of the commands.
#include <iostream>
#include <memory>

#include "tools/cli/command_info.h"
#include "tools/cli/output.h"
#include "tools/cli/subcommand.h"
#include "tools/cli/version.h"

#include "pagefuse/base/new_file.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/edit/similar_names.h"

namespace pagefuse::tools {
namespace {

absl::Status PrintCompletion(const ProgramInfo& program, const std::string& shell) {
  const std::string script = CompletionScript(program, shell);
  if (script.empty()) {
    return absl::InvalidArgumentError(
        StrCat("completion: expected bash, zsh or fish, got \"", shell, "\""));
  }
  std::cout << script;
  return absl::OkStatus();
}

absl::Status WritePages(const ProgramInfo& program, const std::string& folder) {
  PF_RETURN_IF_ERROR(MakeFolder(folder));
  PF_RETURN_IF_ERROR(
      WriteWholeFile(StrCat(folder, "/pagefuse.1"), ManualPage(program, VersionLine())));
  for (const CommandInfo& command : program.commands) {
    PF_RETURN_IF_ERROR(WriteWholeFile(StrCat(folder, "/pagefuse-", ShortName(command), ".1"),
                                      ManualPage(command, VersionLine())));
  }
  return absl::OkStatus();
}

struct ManFlags {
  std::string command, folder;
};

absl::Status PrintPage(const ProgramInfo& program, const ManFlags& flags) {
  if (!flags.folder.empty()) return WritePages(program, flags.folder);
  if (flags.command.empty()) {
    std::cout << ManualPage(program, VersionLine());
    return absl::OkStatus();
  }
  std::vector<std::string> names;
  for (const CommandInfo& command : program.commands) {
    names.push_back(ShortName(command));
    if (names.back() != flags.command) continue;
    std::cout << ManualPage(command, VersionLine());
    return absl::OkStatus();
  }
  return absl::NotFoundError(
      StrCat("unknown command \"", flags.command, "\"", SimilarNames(flags.command, names)));
}

}  // namespace

void AddCompletionCommand(Command app, Outcome& outcome) {
  auto shell = std::make_shared<std::string>();
  Command command = app.AddCommand(
      "completion", "prints a script that completes commands, options and files",
      [app, shell, &outcome] { outcome.status = PrintCompletion(app.Describe(), *shell); });
  command.AddText("shell", *shell, "bash, zsh or fish").Required();
}

void AddManCommand(Command app, Outcome& outcome) {
  auto flags = std::make_shared<ManFlags>();
  Command command = app.AddCommand(
      "man", "prints a manual page, or writes all of them",
      [app, flags, &outcome] { outcome.status = PrintPage(app.Describe(), *flags); });
  command.AddText("command", flags->command, "command to tell of; the program if left out");
  command.AddText("-o,--output-dir", flags->folder, "folder to write all pages into");
}

}  // namespace pagefuse::tools
