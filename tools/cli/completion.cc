// SPDX-License-Identifier: Apache-2.0
// Completion of commands, options and files in three shells.
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "tools/cli/command_info.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse::tools {
namespace {

std::string Options(const CommandInfo& command) {
  std::vector<std::string> names;
  for (const OptionInfo& option : command.options) {
    if (!option.argument) names.insert(names.end(), option.names.begin(), option.names.end());
  }
  return absl::StrJoin(names, " ");
}

std::string Commands(const ProgramInfo& program) {
  return absl::StrJoin(program.commands, " ", [](std::string* out, const CommandInfo& command) {
    *out += ShortName(command);
  });
}

// In single quotes, for each of the shells.
std::string Quoted(const std::string& text) {
  return StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

std::string Bash(const ProgramInfo& program) {
  std::string cases;
  for (const CommandInfo& command : program.commands) {
    StrAppend(&cases, "    ", ShortName(command), ") options='", Options(command), "' ;;\n");
  }
  return StrCat(R"(# Completion of pagefuse for bash: source it, or install it as
# /usr/share/bash-completion/completions/pagefuse.
_pagefuse() {
  local word=${COMP_WORDS[COMP_CWORD]} options
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W ')",
                Commands(program), " ", Options(program.program), R"(' -- "$word"))
    return
  fi
  case ${COMP_WORDS[1]} in
)",
                cases, R"(    *) options= ;;
  esac
  if [[ $word == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$word"))
  else
    compopt -o filenames 2>/dev/null
    COMPREPLY=($(compgen -f -- "$word"))
  fi
}
complete -F _pagefuse pagefuse
)");
}

// Colons and brackets part the fields of a specification of _arguments.
std::string ZshDescription(const std::string& text) {
  return absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"[", "\\["}, {"]", "\\]"}, {":", "\\:"}});
}

std::string ZshOptions(const CommandInfo& command) {
  std::string text;
  for (const OptionInfo& option : command.options) {
    if (option.argument) continue;
    for (const std::string& name : option.names) {
      const std::string spec =
          StrCat(option.several ? "*" : "", name, "[", ZshDescription(option.description), "]",
                 option.value.empty() ? "" : StrCat(":", option.value, ":_files"));
      StrAppend(&text, " \\\n        ", Quoted(spec));
    }
  }
  return text;
}

std::string Zsh(const ProgramInfo& program) {
  std::string commands, cases;
  for (const CommandInfo& command : program.commands) {
    const std::string name = ShortName(command);
    StrAppend(&commands, "    ", Quoted(StrCat(name, ":", ZshDescription(command.description))),
              "\n");
    StrAppend(&cases, "    ", name, ")\n      _arguments", ZshOptions(command),
              " \\\n        '*:file:_files' ;;\n");
  }
  return StrCat(R"(#compdef pagefuse
# Completion of pagefuse for zsh: install it as _pagefuse in a folder of $fpath.
_pagefuse() {
  local -a commands
  commands=(
)",
                commands, R"(  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  local command=$words[2]
  shift words
  (( CURRENT-- ))
  case $command in
)",
                cases, R"(  esac
}
compdef _pagefuse pagefuse
)");
}

std::string Fish(const ProgramInfo& program) {
  std::string text =
      "# Completion of pagefuse for fish: install it as\n"
      "# /usr/share/fish/vendor_completions.d/pagefuse.fish.\n";
  for (const CommandInfo& command : program.commands) {
    const std::string name = ShortName(command);
    StrAppend(&text, "complete -c pagefuse -f -n __fish_use_subcommand -a ", name, " -d ",
              Quoted(command.description), "\n");
    for (const OptionInfo& option : command.options) {
      if (option.argument) continue;
      StrAppend(&text, "complete -c pagefuse -n '__fish_seen_subcommand_from ", name, "'");
      for (const std::string& spelled : option.names) {
        const bool is_long = spelled.starts_with("--");
        StrAppend(&text, is_long ? " -l " : " -s ", spelled.substr(is_long ? 2 : 1));
      }
      StrAppend(&text, option.value.empty() ? "" : " -r", " -d ", Quoted(option.description), "\n");
    }
  }
  return text;
}

}  // namespace

std::string CompletionScript(const ProgramInfo& program, const std::string& shell) {
  if (shell == "bash") return Bash(program);
  if (shell == "zsh") return Zsh(program);
  if (shell == "fish") return Fish(program);
  return "";
}

}  // namespace pagefuse::tools
