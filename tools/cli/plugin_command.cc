// SPDX-License-Identifier: Apache-2.0
// pagefuse plugin: what is in a plug-in.
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>

#include "tools/cli/command.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/plugin/loader/load_plugin.h"

namespace pagefuse::tools {
namespace {

// "plain (10), body"
std::string HowComputed(const Plugin::Op& op) {
  std::string text;
  for (const auto& [kernel, priority] : op.kernels) {
    StrAppend(&text, text.empty() ? "" : ", ", kernel, " (", priority, ")");
  }
  if (op.has_body) StrAppend(&text, text.empty() ? "" : ", ", "body");
  return text;
}

void Line(std::string_view what, const std::string& name, size_t width, std::string_view rest) {
  std::string line = StrCat("  ", what, name);
  if (!rest.empty()) StrAppend(&line, std::string(width - name.size() + 3, ' '), rest);
  std::cout << line << "\n";
}

void Print(const Plugin& plugin) {
  std::cout << plugin.name << (plugin.version.empty() ? "" : " ") << plugin.version << ", "
            << plugin.kind << "\n";
  size_t width = 0;
  for (const Plugin::Op& op : plugin.ops) width = std::max(width, op.name.size());
  for (const Plugin::Rule& rule : plugin.rules) width = std::max(width, rule.name.size());
  for (const Plugin::Op& op : plugin.ops) {
    Line("op         ", op.name, width, StrCat("kernels: ", HowComputed(op)));
  }
  for (const Plugin::Rule& rule : plugin.rules) Line("rule       ", rule.name, width, rule.place);
  for (const std::string& name : plugin.conditions) Line("condition  ", name, width, "");
}

absl::Status ShowPlugin(const std::string& path) {
  PF_ASSIGN_OR_RETURN(const Plugin plugin, LoadPlugin(path, {.try_in_child = true}));
  Print(plugin);
  return absl::OkStatus();
}

}  // namespace

void AddPluginCommand(Command app, Outcome& outcome) {
  auto path = std::make_shared<std::string>();
  Command command = app.AddCommand("plugin", "lists what a plug-in adds",
                                   [path, &outcome] { outcome.status = ShowPlugin(*path); });
  command.AddText("path", *path, "a shared object or a text of ops and rules (docs/plugins.md)")
      .Required();
}

}  // namespace pagefuse::tools
