// SPDX-License-Identifier: Apache-2.0
// The command line as its commands declare it. CLI11 stands behind: its headers are seconds of every
// source that includes them, so that command_line.cc alone does.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace pagefuse::tools {

struct CommandInfo;
struct ProgramInfo;

// The numbers that an option takes, both ends included.
struct Bounds {
  int64_t least = 0;
  int64_t most = std::numeric_limits<int64_t>::max();
};
inline constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();

class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}
  Option& Required();
  Option& Optional();
  Option& ShowsDefault();
  Option& Excludes(const Option& other);

 private:
  CLI::Option* option_;
};

// The program, or one of its subcommands. A name without dashes is a positional argument. What is
// bound must live until the command line was read and the command has run.
class Command {
 public:
  explicit Command(CLI::App& app) : app_(&app) {}

  Command AddCommand(const std::string& name, const std::string& description,
                     std::function<void()> run);
  // The heading of the options that are added from here on.
  void Group(const std::string& name);
  // What the program's help and completions are written from.
  ProgramInfo Describe() const;
  // Text behind the options in the help, wrapped; a line that begins with a blank stays as it is.
  void Footer(const std::string& text);

  Option AddFlag(const std::string& name, bool& value, const std::string& description);
  Option AddText(const std::string& name, std::string& value, const std::string& description);
  Option AddText(const std::string& name, std::optional<std::string>& value,
                 const std::string& description);
  // Takes one value each time it is given; what follows belongs to something else.
  Option AddTexts(const std::string& name, std::vector<std::string>& values,
                  const std::string& description);
  // The same, or several with commas between them.
  Option AddList(const std::string& name, std::vector<std::string>& values,
                 const std::string& description);
  // All positional arguments.
  Option AddArguments(const std::string& name, std::vector<std::string>& values,
                      const std::string& description);
  // An integer within the bounds.
  Option AddNumber(const std::string& name, int& value, Bounds bounds,
                   const std::string& description);
  Option AddNumber(const std::string& name, int64_t& value, Bounds bounds,
                   const std::string& description);
  Option AddNumber(const std::string& name, std::optional<int64_t>& value, Bounds bounds,
                   const std::string& description);
  // A finite number that is not negative.
  Option AddTolerance(const std::string& name, std::optional<double>& value,
                      const std::string& description);
  // A finite number.
  Option AddReal(const std::string& name, std::optional<double>& value,
                 const std::string& description);
  // Bytes: 8GiB, or a number.
  Option AddSize(const std::string& name, uint64_t& value, const std::string& description);

 private:
  CLI::App* app_;
};

// What the program is called with.
struct Program {
  std::string description;
  std::string version;
  std::function<void(Command)> declare;  // adds the commands
  // Adds the options that every command has. May be null.
  std::function<void(Command)> add_common = {};
  // Runs behind the command line and before the command, which is left out if it returns false. May
  // be null.
  std::function<bool()> prepare = {};
};

// The columns of the terminal behind standard output, within bounds; 100 where there is none.
int TerminalWidth();

// Reads the command line and runs the command. False if it does not say what to do, of which the
// user was told; what the command throws passes through.
bool RunCommandLine(const Program& program, int argc, char** argv);

}  // namespace pagefuse::tools
