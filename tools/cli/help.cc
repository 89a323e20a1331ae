// SPDX-License-Identifier: Apache-2.0
// Help for a terminal and for `man`, of the same data.
#include <algorithm>
#include <sstream>

#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "tools/cli/command_info.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse::tools {
namespace {

constexpr int kDescriptionColumn = 28;

// Lines of at most `width` columns, the first of which begins at `column`, all behind `indent`. A
// line that begins with a blank is laid out already.
std::string Wrapped(const std::string& text, int indent, int column, int width) {
  std::string out;
  for (const std::string& paragraph : std::vector<std::string>(absl::StrSplit(text, '\n'))) {
    if (!out.empty()) out += '\n';
    if (paragraph.starts_with(' ')) {
      out += paragraph;
      column = 0;
      continue;
    }
    if (!out.empty()) {
      out.append(indent, ' ');
      column = indent;
    }
    std::istringstream words(paragraph);
    bool first = true;
    for (std::string word; words >> word; first = false) {
      const int length = static_cast<int>(word.size());
      if (!first && column + 1 + length > width) {
        out += '\n' + std::string(indent, ' ');
        column = indent;
      } else if (!first) {
        out += ' ';
        ++column;
      }
      out += word;
      column += length;
    }
  }
  return out;
}

// "-o, --output FILE", "--json", "model"
std::string Spelled(const OptionInfo& option) {
  std::string text = absl::StrJoin(option.names, ", ");
  if (option.argument) return option.several ? text + "..." : text;
  return option.value.empty() ? text : StrCat(text, " ", option.value);
}

std::string Described(const OptionInfo& option) {
  return option.standard.empty() ? option.description
                                 : StrCat(option.description, " [", option.standard, "]");
}

// "  name    description", the description on a line of its own where the name is too long.
std::string Row(const std::string& name, const std::string& description, int width) {
  std::string text = "  " + name;
  if (text.size() + 2 > kDescriptionColumn) {
    text += '\n';
    text.append(kDescriptionColumn, ' ');
  } else {
    text.append(kDescriptionColumn - text.size(), ' ');
  }
  return StrCat(text, Wrapped(description, kDescriptionColumn, kDescriptionColumn, width), "\n");
}

std::string Usage(const CommandInfo& command) {
  std::string text = StrCat(command.name, " [OPTIONS]");
  for (const OptionInfo& option : command.options) {
    if (!option.argument) continue;
    const std::string name = Spelled(option);
    StrAppend(&text, " ", option.required ? name : StrCat("[", name, "]"));
  }
  return text;
}

// In the order in which they come first.
template <typename Items>
std::vector<std::string> GroupsOf(const Items& items) {
  std::vector<std::string> groups;
  for (const auto& item : items) {
    if (std::ranges::find(groups, item.group) == groups.end()) groups.push_back(item.group);
  }
  return groups;
}

// What --help says of an option is the same in every command: it comes last.
std::vector<std::string> OptionGroups(const CommandInfo& command) {
  std::vector<OptionInfo> named;
  for (const OptionInfo& option : command.options) {
    if (!option.argument) named.push_back(option);
  }
  std::vector<std::string> groups = GroupsOf(named);
  std::stable_partition(groups.begin(), groups.end(),
                        [](const std::string& g) { return g != "General"; });
  return groups;
}

std::string ExamplesText(const CommandInfo& command, int width) {
  if (command.examples.empty()) return "";
  std::string text = "\nExamples:\n";
  for (const ExampleInfo& example : command.examples) {
    StrAppend(&text, "  ", example.command, "\n      ", Wrapped(example.what, 6, 6, width), "\n");
  }
  return text;
}

std::string FooterText(const std::string& footer, int width) {
  return footer.empty() ? "" : StrCat("\n", Wrapped(footer, 0, 0, width), "\n");
}

// roff reads backslashes, hyphens, and dots and quotes at the beginning of a line.
std::string Roff(const std::string& text) {
  std::string escaped = absl::StrReplaceAll(text, {{"\\", "\\e"}, {"-", "\\-"}});
  std::vector<std::string> lines = absl::StrSplit(escaped, '\n');
  for (std::string& line : lines) {
    if (line.starts_with('.') || line.starts_with('\'')) line = "\\&" + line;
  }
  return absl::StrJoin(lines, "\n.br\n");
}

std::string ManualHead(const CommandInfo& command, const std::string& version) {
  const std::string title = absl::StrReplaceAll(command.name, {{" ", "-"}});
  return StrCat(".TH \"", title, "\" 1 \"\" \"", version, "\"\n.SH NAME\n", Roff(title), " \\- ",
                Roff(command.description), "\n.SH SYNOPSIS\n.B ", Roff(Usage(command)), "\n");
}

std::string ManualOptions(const CommandInfo& command) {
  std::string text;
  for (const OptionInfo& option : command.options) {
    if (!option.argument) continue;
    if (text.empty()) text = ".SH ARGUMENTS\n";
    StrAppend(&text, ".TP\n.B ", Roff(Spelled(option)), "\n", Roff(Described(option)), "\n");
  }
  text += ".SH OPTIONS\n";
  for (const std::string& group : OptionGroups(command)) {
    StrAppend(&text, ".SS ", Roff(group), "\n");
    for (const OptionInfo& option : command.options) {
      if (option.argument || option.group != group) continue;
      StrAppend(&text, ".TP\n.B ", Roff(Spelled(option)), "\n", Roff(Described(option)), "\n");
    }
  }
  return text;
}

std::string ManualTail(const CommandInfo& command) {
  std::string text;
  if (!command.footer.empty()) StrAppend(&text, ".SH NOTES\n", Roff(command.footer), "\n");
  if (command.examples.empty()) return text;
  text += ".SH EXAMPLES\n";
  for (const ExampleInfo& example : command.examples) {
    StrAppend(&text, ".TP\n.B ", Roff(example.command), "\n", Roff(example.what), "\n");
  }
  return text;
}

}  // namespace

std::string ShortName(const CommandInfo& command) {
  return command.name.substr(command.name.rfind(' ') + 1);
}

std::string HelpText(const ProgramInfo& program, int width) {
  std::string text = StrCat(Wrapped(program.program.description, 0, 0, width),
                            "\n\nUsage: ", program.program.name, " COMMAND [OPTIONS]\n");
  for (const std::string& group : GroupsOf(program.commands)) {
    StrAppend(&text, "\n", group, ":\n");
    for (const CommandInfo& command : program.commands) {
      if (command.group != group) continue;
      StrAppend(&text, Row(ShortName(command), command.description, width));
    }
  }
  text += "\nGeneral:\n";
  for (const OptionInfo& option : program.program.options) {
    StrAppend(&text, Row(Spelled(option), Described(option), width));
  }
  return text + ExamplesText(program.program, width) + FooterText(program.program.footer, width);
}

std::string HelpText(const CommandInfo& command, int width) {
  std::string text = StrCat(Wrapped(command.description, 0, 0, width),
                            "\n\nUsage: ", Wrapped(Usage(command), 7, 7, width), "\n");
  bool first = true;
  for (const OptionInfo& option : command.options) {
    if (!option.argument) continue;
    if (first) text += "\n";
    first = false;
    StrAppend(&text, Row(Spelled(option), Described(option), width));
  }
  for (const std::string& group : OptionGroups(command)) {
    StrAppend(&text, "\n", group, ":\n");
    for (const OptionInfo& option : command.options) {
      if (option.argument || option.group != group) continue;
      StrAppend(&text, Row(Spelled(option), Described(option), width));
    }
  }
  return text + ExamplesText(command, width) + FooterText(command.footer, width);
}

std::string ManualPage(const CommandInfo& command, const std::string& version) {
  return StrCat(ManualHead(command, version), ManualOptions(command), ManualTail(command),
                ".SH SEE ALSO\n.BR pagefuse (1)\n");
}

std::string ManualPage(const ProgramInfo& program, const std::string& version) {
  std::string text = ManualHead(program.program, version) + ".SH COMMANDS\n";
  for (const std::string& group : GroupsOf(program.commands)) {
    StrAppend(&text, ".SS ", Roff(group), "\n");
    for (const CommandInfo& command : program.commands) {
      if (command.group != group) continue;
      StrAppend(&text, ".TP\n.BR pagefuse\\-", ShortName(command), " (1)\n",
                Roff(command.description), "\n");
    }
  }
  return text + ManualOptions(program.program) + ManualTail(program.program);
}

}  // namespace pagefuse::tools
