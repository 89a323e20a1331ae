// SPDX-License-Identifier: Apache-2.0
// Plug-ins: files that add ops, kernels, rules and conditions to this process.
//
// A plug-in is a text of ops and rules (passes/rewrite/text/op_text.h, rule_text.h) or a shared object
// that says what is in it (pagefuse/plugin.h). Loading one is all or nothing: it is read, checked as a
// whole, and only then seen by others. Sessions that run keep the ops and kernels that they have; what
// is loaded stays.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace pagefuse {

struct PluginOptions {
  // Loads it in a child process first, so that code which crashes or ends the process, there or in a
  // constructor, is a Status here. For processes with one thread: others are not in the child.
  bool try_in_child = false;
};

// What a plug-in that is loaded added.
struct Plugin {
  struct Op {
    std::string name;                                       // with its domain
    std::vector<std::pair<std::string, int>> kernels = {};  // of the plug-in, with their priorities
    bool has_body = false;
    bool is_new = false;  // else the kernels are for an op that was there
  };
  struct Rule {
    std::string name;
    std::string place;  // "before: attention"
  };
  std::string path;     // as it was given
  std::string name;     // "acme"
  std::string version;  // may be empty
  std::string kind;     // "plug-in ABI 1.0", "text"
  std::vector<Op> ops;
  std::vector<Rule> rules;
  std::vector<std::string> conditions;
};

// Loads a file; one that is loaded already is left as it is. Errors name the file, and change nothing:
// NotFound, InvalidArgument for what is wrong with it, FailedPrecondition for code that crashed in the
// child. Thread-safe.
absl::StatusOr<Plugin> LoadPlugin(const std::string& path, const PluginOptions& options = {});

// All that are loaded, in order.
std::vector<Plugin> LoadedPlugins();

}  // namespace pagefuse
