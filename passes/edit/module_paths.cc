// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/edit/module_paths.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

constexpr std::string_view kScopes = "pkg.torch.onnx.name_scopes", kNamespace = "namespace",
                           kModules = "pkg.pagefuse.modules";

// The strings of a list as Python prints it: ['', 'model', "model.layers"].
std::vector<std::string> QuotedStrings(std::string_view text) {
  std::vector<std::string> strings;
  for (size_t at = 0; (at = text.find_first_of("'\"", at)) != text.npos;) {
    const size_t end = text.find(text[at], at + 1);
    if (end == text.npos) break;
    strings.emplace_back(text.substr(at + 1, end - at - 1));
    at = end + 1;
  }
  return strings;
}

// The names of "name: class/name: class", where an outer module may have no name.
std::vector<std::string> NamesBeforeClasses(std::string_view text) {
  std::vector<std::string> names;
  for (absl::string_view part : absl::StrSplit(AbslView(text), '/')) {
    const size_t colon = std::min(part.find(": "), part.size());
    names.emplace_back(part.substr(0, colon));
  }
  return names;
}

}  // namespace

std::vector<std::string> ModulePaths(const Node& node) {
  std::vector<std::string> paths;
  if (const auto scopes = FindMetadata(node.metadata, kScopes)) {
    paths = QuotedStrings(*scopes);
  } else if (const auto names = FindMetadata(node.metadata, kNamespace)) {
    paths = NamesBeforeClasses(*names);
  }
  // The last is the call itself, and the whole program has no name.
  if (!paths.empty()) paths.pop_back();
  std::erase(paths, "");
  if (const auto modules = FindMetadata(node.metadata, kModules)) {
    for (absl::string_view module : absl::StrSplit(AbslView(*modules), ',')) {
      paths.emplace_back(module);
    }
  }
  return paths;
}

void NoteModules(const std::vector<const Node*>& origins, Node& node) {
  std::set<std::string> innermost;
  for (const Node* origin : origins) {
    const std::vector<std::string> paths = ModulePaths(*origin);
    if (FindMetadata(origin->metadata, kModules)) {
      innermost.insert(paths.begin(), paths.end());
    } else if (!paths.empty()) {
      innermost.insert(paths.back());
    }
  }
  // One alone is what the metadata that rewrites keep says.
  if (innermost.size() > 1) SetMetadata(node.metadata, kModules, absl::StrJoin(innermost, ","));
}

}  // namespace pagefuse
