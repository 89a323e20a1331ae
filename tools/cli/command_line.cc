#include "tools/cli/command_line.h"

#include <cmath>
#include <iostream>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"

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

bool RunCommandLine(const Program& program, int argc, char** argv) {
  CLI::App app(program.description);
  app.require_subcommand(1);
  app.set_help_all_flag("--help-all", "help of all subcommands");
  app.set_version_flag("--version", program.version);
  program.declare(Command(app));
  if (program.add_common) {
    for (CLI::App* command : app.get_subcommands(nullptr)) program.add_common(Command(*command));
  }
  // What is called before the commands' own callbacks.
  struct NotPrepared {};
  if (program.prepare) {
    app.parse_complete_callback([&program] {
      if (!program.prepare()) throw NotPrepared();
    });
  }
  try {
    app.parse(argc, argv);
  } catch (const NotPrepared&) {
    return true;
  } catch (const CLI::ParseError& error) {
    const std::string unknown = UnknownName(app);
    if (error.get_exit_code() == 0 || unknown.empty()) return app.exit(error) == 0;
    std::cerr << unknown << "\nRun with --help or --help-all for more information.\n";
    return false;
  }
  return true;
}

}  // namespace pagefuse::tools
