// SPDX-License-Identifier: Apache-2.0
// The command line as data, from which its help, its manual pages and its completions are written.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace pagefuse::tools {

struct OptionInfo {
  std::vector<std::string> names;  // "-o", "--output"; of an argument its name
  std::string value;               // "TEXT", "INT"; empty for a flag
  std::string description, group;
  std::string standard;  // what holds if it is left out, where that is told
  bool argument = false, required = false, several = false;
};

struct ExampleInfo {
  std::string command, what;
};

struct CommandInfo {
  std::string name;  // "pagefuse generate"
  std::string description, group, footer;
  std::vector<OptionInfo> options;
  std::vector<ExampleInfo> examples;
};

struct ProgramInfo {
  CommandInfo program;
  std::vector<CommandInfo> commands;  // in the order of their groups
};

// The name of the command alone: "generate".
std::string ShortName(const CommandInfo& command);

// The examples of a command, for "generate"; tests run each of them (tests/tools/check_help.sh).
std::vector<ExampleInfo> ExamplesOf(const std::string& command);

// The group of a command in the help, and its place among all.
std::string GroupOf(const std::string& command);
size_t PlaceOf(const std::string& command);

// Text behind the help of the program and in its manual: exit codes and variables of the environment.
std::string ProgramFooter();

// The help, no line wider than `width` columns but for words that are.
std::string HelpText(const ProgramInfo& program, int width);
std::string HelpText(const CommandInfo& command, int width);

// A manual page in roff; of the program it lists the commands.
std::string ManualPage(const ProgramInfo& program, const std::string& version);
std::string ManualPage(const CommandInfo& command, const std::string& version);

// A script that completes commands, options and files. Empty for a shell other than bash, zsh and
// fish.
std::string CompletionScript(const ProgramInfo& program, const std::string& shell);

}  // namespace pagefuse::tools
