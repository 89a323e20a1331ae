// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/command_line.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <utility>

#include <unistd.h>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "tools/cli/command_info.h"
#include <sys/ioctl.h>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/edit/similar_names.h"

namespace pagefuse::tools {
namespace {

// "expected 0 to 1024, got "-1"" unless the text is an integer within the bounds.
std::string CheckNumber(Bounds bounds, const std::string& text) {
  int64_t number = 0;
  const bool fits =
      absl::SimpleAtoi(text, &number) && number >= bounds.least && number <= bounds.most;
  if (fits) return "";
  const bool open = bounds.most == std::numeric_limits<int64_t>::max();
  return StrCat("expected ", bounds.least, open ? " or more" : StrCat(" to ", bounds.most),
                ", got \"", text, "\"");
}

std::string CheckTolerance(const std::string& text) {
  double number = 0;
  const bool fits = absl::SimpleAtod(text, &number) && std::isfinite(number) && number >= 0;
  return fits ? std::string() : StrCat("expected a number of 0 or more, got \"", text, "\"");
}

std::string CheckReal(const std::string& text) {
  double number = 0;
  const bool fits = absl::SimpleAtod(text, &number) && std::isfinite(number);
  return fits ? std::string() : StrCat("expected a number, got \"", text, "\"");
}

template <typename Number>
Option AddChecked(CLI::App& app, const std::string& name, Number& value, Bounds bounds,
                  const std::string& description) {
  return Option(app.add_option(name, value, description)->check([bounds](const std::string& text) {
    return CheckNumber(bounds, text);
  }));
}

std::string UnknownOption(const CLI::App& command, const std::string& argument) {
  const std::string name = argument.substr(0, argument.find('='));
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& known : option->get_lnames()) names.push_back("--" + known);
  }
  return StrCat("unknown option \"", name, "\"", SimilarNames(name, names));
}

std::string UnknownCommand(const CLI::App& app, const std::string& name) {
  std::vector<std::string> names;
  for (const CLI::App* known : app.get_subcommands(nullptr)) names.push_back(known->get_name());
  return StrCat("unknown command \"", name, "\"", SimilarNames(name, names));
}

// The first option or command of the line that there is not, in words; "" if it fails otherwise.
std::string UnknownName(const CLI::App& app) {
  const std::vector<CLI::App*> given = app.get_subcommands();
  const CLI::App& command = given.empty() ? app : *given.front();
  for (const std::string& argument : command.remaining()) {
    if (argument.starts_with("-")) return UnknownOption(command, argument);
    if (given.empty()) return UnknownCommand(app, argument);
  }
  return "";
}

// A type's name without what its checks add to it.
std::string ValueName(const CLI::Option& option) {
  if (option.get_type_size() == 0) return "";
  const std::string name = option.get_type_name();
  return name.substr(0, name.find_first_of(":= "));
}

OptionInfo OptionInfoOf(const CLI::Option& option) {
  OptionInfo info;
  info.argument = option.get_positional() && !option.nonpositional();
  if (info.argument) info.names.push_back(option.get_single_name());
  for (const std::string& name : option.get_snames()) info.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) info.names.push_back("--" + name);
  info.value = ValueName(option);
  info.description = option.get_description();
  info.group = option.get_group();
  info.standard = option.get_default_str();
  info.required = option.get_required();
  info.several = option.get_expected_max() > 1;
  return info;
}

CommandInfo CommandInfoOf(const CLI::App& app) {
  CommandInfo info;
  const CLI::App* parent = app.get_parent();
  info.name = parent == nullptr ? "pagefuse" : StrCat("pagefuse ", app.get_name());
  info.description = app.get_description();
  info.footer = app.get_footer();
  info.group = GroupOf(app.get_name());
  info.examples = ExamplesOf(parent == nullptr ? "pagefuse" : app.get_name());
  for (const CLI::Option* option : app.get_options()) {
    // An option without a group is not told.
    if (!option->get_group().empty()) info.options.push_back(OptionInfoOf(*option));
  }
  return info;
}

ProgramInfo ProgramInfoOf(const CLI::App& app) {
  ProgramInfo info{.program = CommandInfoOf(app), .commands = {}};
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    info.commands.push_back(CommandInfoOf(*command));
  }
  std::ranges::stable_sort(info.commands, {},
                           [](const CommandInfo& command) { return PlaceOf(ShortName(command)); });
  return info;
}

std::string Help(const CLI::App& app, CLI::AppFormatMode mode) {
  if (app.get_parent() != nullptr) return HelpText(CommandInfoOf(app), TerminalWidth());
  const ProgramInfo program = ProgramInfoOf(app);
  std::string text = HelpText(program, TerminalWidth());
  if (mode != CLI::AppFormatMode::All) return text;
  for (const CommandInfo& command : program.commands) {
    StrAppend(&text, "\n\n", command.name, ": ", HelpText(command, TerminalWidth()));
  }
  return text;
}

// What every command's help ends with.
void AddGeneral(const Program& program, CLI::App& command) {
  command.set_help_flag("-h,--help", "this help")->group("General");
  command.set_help_all_flag();
  command.option_defaults()->group("General");
  if (program.add_common) program.add_common(Command(command));
}

void TellError(const CLI::App& app, const std::string& message) {
  const std::vector<CLI::App*> given = app.get_subcommands();
  std::cerr << "pagefuse: " << message << "\nhint: pagefuse "
            << (given.empty() ? "" : given.front()->get_name() + " ") << "--help lists "
            << (given.empty() ? "the commands" : "what it takes") << "\n";
}

}  // namespace

Option& Option::Required() {
  option_->required();
  return *this;
}

Option& Option::Optional() {
  option_->required(false);
  return *this;
}

Option& Option::ShowsDefault() {
  option_->capture_default_str();
  return *this;
}

Option& Option::Excludes(const Option& other) {
  option_->excludes(other.option_);
  return *this;
}

Command Command::AddCommand(const std::string& name, const std::string& description,
                            std::function<void()> run) {
  CLI::App* command = app_->add_subcommand(name, description);
  command->callback(std::move(run));
  return Command(*command);
}

void Command::Group(const std::string& name) { app_->option_defaults()->group(name); }

ProgramInfo Command::Describe() const { return ProgramInfoOf(*app_); }

void Command::Footer(const std::string& text) { app_->footer(text); }

Option Command::AddFlag(const std::string& name, bool& value, const std::string& description) {
  return Option(app_->add_flag(name, value, description));
}

Option Command::AddText(const std::string& name, std::string& value,
                        const std::string& description) {
  return Option(app_->add_option(name, value, description));
}

Option Command::AddText(const std::string& name, std::optional<std::string>& value,
                        const std::string& description) {
  return Option(app_->add_option(name, value, description));
}

Option Command::AddTexts(const std::string& name, std::vector<std::string>& values,
                         const std::string& description) {
  return Option(app_->add_option(name, values, description)->allow_extra_args(false));
}

Option Command::AddList(const std::string& name, std::vector<std::string>& values,
                        const std::string& description) {
  return Option(
      app_->add_option(name, values, description)->delimiter(',')->allow_extra_args(false));
}

Option Command::AddArguments(const std::string& name, std::vector<std::string>& values,
                             const std::string& description) {
  return Option(app_->add_option(name, values, description));
}

Option Command::AddNumber(const std::string& name, int& value, Bounds bounds,
                          const std::string& description) {
  return AddChecked(*app_, name, value, bounds, description);
}

Option Command::AddNumber(const std::string& name, int64_t& value, Bounds bounds,
                          const std::string& description) {
  return AddChecked(*app_, name, value, bounds, description);
}

Option Command::AddNumber(const std::string& name, std::optional<int64_t>& value, Bounds bounds,
                          const std::string& description) {
  return AddChecked(*app_, name, value, bounds, description);
}

Option Command::AddTolerance(const std::string& name, std::optional<double>& value,
                             const std::string& description) {
  return Option(app_->add_option(name, value, description)->check(CheckTolerance));
}

Option Command::AddReal(const std::string& name, std::optional<double>& value,
                        const std::string& description) {
  return Option(app_->add_option(name, value, description)->check(CheckReal));
}

Option Command::AddSize(const std::string& name, uint64_t& value, const std::string& description) {
  return Option(app_->add_option(name, value, description)
                    ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false)));
}

int TerminalWidth() {
  constexpr int kUsual = 100, kLeast = 40, kMost = 120;
  winsize size{};
  if (isatty(STDOUT_FILENO) != 1 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 ||
      size.ws_col == 0) {
    return kUsual;
  }
  return std::clamp<int>(size.ws_col, kLeast, kMost);
}

bool RunCommandLine(const Program& program, int argc, char** argv) {
  CLI::App app(program.description, "pagefuse");
  app.require_subcommand(1);
  app.option_defaults()->group("General");
  app.set_help_flag("-h,--help", "this help")->group("General");
  app.set_help_all_flag("--help-all", "the help of all commands");
  app.set_version_flag("--version", program.version, "version, commit, build and SIMD targets");
  app.option_defaults()->group("Options");
  app.footer(ProgramFooter());
  app.formatter_fn([](const CLI::App* shown, const std::string&, CLI::AppFormatMode mode) {
    return Help(*shown, mode);
  });
  program.declare(Command(app));
  for (CLI::App* command : app.get_subcommands(nullptr)) AddGeneral(program, *command);
  // What is called before the commands' own callbacks.
  struct NotPrepared {};
  if (program.prepare) {
    app.parse_complete_callback([&program] {
      if (!program.prepare()) throw NotPrepared();
    });
  }
  if (argc == 1) {
    std::cerr << Help(app, CLI::AppFormatMode::Normal);
    return false;
  }
  try {
    app.parse(argc, argv);
  } catch (const NotPrepared&) {
    return true;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error) == 0;
    const std::string unknown = UnknownName(app);
    TellError(app, unknown.empty() ? error.what() : unknown);
    return false;
  }
  return true;
}

}  // namespace pagefuse::tools
