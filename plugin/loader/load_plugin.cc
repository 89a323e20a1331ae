// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/plugin/loader/load_plugin.h"

#include <filesystem>
#include <mutex>

#include "absl/strings/match.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/status_place.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/plugin/loader/child_process.h"
#include "pagefuse/plugin/loader/commit_plugin.h"
#include "pagefuse/plugin/loader/custom_ops_plugin.h"
#include "pagefuse/plugin/loader/elf_file.h"
#include "pagefuse/plugin/loader/native_plugin.h"
#include "pagefuse/plugin/loader/text_plugin.h"

namespace pagefuse {
namespace {

struct Entry {
  std::string file;  // its canonical path
  Plugin plugin;
};

struct State {
  std::mutex lock;
  std::vector<Entry> loaded;
};

State& TheState() {
  static auto* state = new State;
  return *state;
}

std::vector<Plugin> PluginsOf(const State& state) {
  std::vector<Plugin> plugins;
  for (const Entry& entry : state.loaded) plugins.push_back(entry.plugin);
  return plugins;
}

// By what the file is.
absl::StatusOr<PluginContents> ReadPlugin(const std::string& path, const std::string& file) {
  PF_ASSIGN_OR_RETURN(std::string bytes, ReadFile(file));
  if (!IsElf(bytes)) return ReadTextPlugin(path, std::move(bytes));
  PF_ASSIGN_OR_RETURN(const ElfFile object, ElfFile::Open(bytes));
  if (IsCustomOpsPlugin(object)) return ReadCustomOpsPlugin(file);
  return ReadNativePlugin(path, file, object);
}

absl::StatusOr<Plugin> Load(const std::string& path, const std::string& file, const State& state) {
  PF_ASSIGN_OR_RETURN(PluginContents contents, ReadPlugin(path, file));
  const bool is_text = contents.kind == kTextKind;
  absl::StatusOr<Plugin> plugin = CommitPlugin(path, std::move(contents), PluginsOf(state));
  if (plugin.ok() || is_text) return plugin;
  // Nobody can look at the line of a text that is in an object.
  const absl::string_view message = plugin.status().message();
  return absl::Status(plugin.status().code(), message.substr(0, message.find('\n')));
}

// Errors in texts say already where they are.
absl::Status InPlugin(const std::string& path, const absl::Status& status) {
  if (status.ok() || absl::StartsWith(status.message(), StrCat(path, ":"))) return status;
  return AtPlace(path, status);
}

}  // namespace

absl::StatusOr<Plugin> LoadPlugin(const std::string& path, const PluginOptions& options) {
  State& state = TheState();
  const std::lock_guard lock(state.lock);
  std::error_code error;
  const std::string file = std::filesystem::canonical(path, error).string();
  if (error) return absl::NotFoundError(StrCat(path, ": ", error.message()));
  for (const Entry& entry : state.loaded) {
    if (entry.file == file) return entry.plugin;
  }
  if (options.try_in_child) {
    const absl::Status tried = TryInChild([&] { return Load(path, file, state).status(); });
    if (!tried.ok()) return InPlugin(path, tried);
  }
  absl::StatusOr<Plugin> plugin = Load(path, file, state);
  if (!plugin.ok()) return InPlugin(path, plugin.status());
  state.loaded.push_back({file, *plugin});
  return plugin;
}

std::vector<Plugin> LoadedPlugins() {
  State& state = TheState();
  const std::lock_guard lock(state.lock);
  return PluginsOf(state);
}

}  // namespace pagefuse
