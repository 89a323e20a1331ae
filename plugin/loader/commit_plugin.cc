// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/plugin/loader/commit_plugin.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/registry/registry.h"
#include "pagefuse/passes/pipeline/placed_rules.h"
#include "pagefuse/passes/rewrite/text/op_text.h"

namespace pagefuse {
namespace {

constexpr int64_t kAnyVersion = INT64_MAX;

std::string FullName(const OpDef& op) {
  return op.domain().empty() ? op.name() : StrCat(op.domain(), ".", op.name());
}

// Domain and name of "acme.Scale".
std::pair<std::string, std::string> Parts(const std::string& op) {
  const size_t dot = op.rfind('.');
  if (dot == std::string::npos) return {"", op};
  return {op.substr(0, dot), op.substr(dot + 1)};
}

class Commit {
 public:
  Commit(PluginContents contents, const std::vector<Plugin>& loaded)
      : contents_(std::move(contents)), loaded_(loaded), ops_(OpRegistry::Global()) {
    plugin_.name = contents_.name;
    plugin_.version = contents_.version;
    plugin_.kind = contents_.kind;
  }

  absl::StatusOr<Plugin> Run(const std::string& path) {
    plugin_.path = path;
    PF_RETURN_IF_ERROR(CheckName());
    PF_RETURN_IF_ERROR(CollectOps());
    for (const AddedKernel& added : contents_.kernels) PF_RETURN_IF_ERROR(AddKernel(added));
    PF_RETURN_IF_ERROR(AddOps());
    ops_.AddSource(StrCat(contents_.name, contents_.version.empty() ? "" : " ", contents_.version,
                          " (", path, ")"));
    PF_RETURN_IF_ERROR(CheckTexts());
    OpRegistry::Publish(std::move(ops_));
    PublishConditionFunctions(contents_.conditions);
    PublishPluginRules(rules_);
    return std::move(plugin_);
  }

 private:
  absl::Status CheckName() const {
    for (const Plugin& other : loaded_) {
      if (other.name != contents_.name) continue;
      return absl::InvalidArgumentError(
          StrCat("the plug-in of ", other.path, " is called \"", other.name, "\" too"));
    }
    return absl::OkStatus();
  }

  absl::Status CollectOps() {
    for (const RuleFile& text : contents_.texts) {
      PF_ASSIGN_OR_RETURN(std::vector<TextOp> ops, ParseOps(text));
      for (TextOp& op : ops) new_ops_.push_back(std::move(op));
    }
    for (OpDef& op : contents_.ops) new_ops_.push_back({.def = std::move(op)});
    return absl::OkStatus();
  }

  // The file that brought an op.
  std::string OwnerOf(const std::string& op) const {
    for (const Plugin& other : loaded_) {
      for (const Plugin::Op& known : other.ops) {
        if (known.name == op && known.is_new) return StrCat(other.path, " has it already");
      }
    }
    return "it is an op already";
  }

  absl::Status AddKernel(const AddedKernel& added) {
    const auto error = [&](std::string_view what) {
      return absl::InvalidArgumentError(
          StrCat("kernel \"", added.kernel.name, "\" for ", added.op, ": ", what));
    };
    for (TextOp& op : new_ops_) {
      if (FullName(op.def) != added.op) continue;
      for (const Kernel& other : op.def.kernels()) {
        if (other.name == added.kernel.name)
          return error("the op has a kernel of that name already");
      }
      op.def.AddKernel(added.kernel);
      return absl::OkStatus();
    }
    const auto [domain, name] = Parts(added.op);
    const OpDef* op = ops_.Find(domain, name, kAnyVersion);
    if (op == nullptr) return error("there is no such op");
    if (op->bodies() != nullptr) return error("the op runs graphs, not kernels");
    if (op->is_elementwise() && added.kernel.prepare) {
      return error("kernels of elementwise ops prepare nothing");
    }
    const absl::Status status = ops_.AddKernel(domain, name, added.kernel);
    if (!status.ok()) return error(StdView(status.message()));
    Entry(added.op).kernels.emplace_back(added.kernel.name, added.kernel.priority);
    return absl::OkStatus();
  }

  Plugin::Op& Entry(const std::string& name) {
    for (Plugin::Op& op : plugin_.ops) {
      if (op.name == name) return op;
    }
    return plugin_.ops.emplace_back(Plugin::Op{.name = name});
  }

  absl::Status AddOps() {
    for (TextOp& op : new_ops_) {
      const std::string name = FullName(op.def);
      if (ops_.Find(op.def.domain(), op.def.name(), kAnyVersion) != nullptr) {
        return absl::InvalidArgumentError(StrCat("op ", name, ": ", OwnerOf(name)));
      }
      Plugin::Op& entry = Entry(name);
      entry.is_new = true;
      entry.has_body = op.def.has_decomposition();
      for (const Kernel& kernel : op.def.kernels()) {
        entry.kernels.emplace_back(kernel.name, kernel.priority);
        if (!op.elementwise || !kernel.prepare) continue;
        return absl::InvalidArgumentError(StrCat("kernel \"", kernel.name, "\" for ", name,
                                                 ": kernels of elementwise ops prepare nothing"));
      }
      if (op.elementwise && !op.def.kernels().empty()) op.def.Elementwise();
      PF_RETURN_IF_ERROR(ops_.Add(std::move(op.def)));
    }
    return absl::OkStatus();
  }

  // Bodies, rules and conditions, with the new ops in sight of this thread alone.
  absl::Status CheckTexts() {
    const ScopedOpRegistry scope(ops_);
    for (const RuleFile& text : contents_.texts) PF_RETURN_IF_ERROR(CheckBodies(text));
    ConditionFunctions functions = KnownConditionFunctions();
    for (const auto& added : contents_.conditions) {
      const bool is_taken = std::ranges::any_of(
          functions, [&](const auto& known) { return known->name == added->name; });
      if (is_taken) {
        return absl::InvalidArgumentError(
            StrCat("condition \"", added->name, "\": there is one already"));
      }
      functions.push_back(added);
      plugin_.conditions.push_back(added->name);
    }
    PF_ASSIGN_OR_RETURN(rules_,
                        ReadPluginRules(plugin_.path, contents_.name, contents_.texts, functions));
    for (const PlacedPass& placed : rules_) {
      const std::string place = !placed.before.empty() ? StrCat("before: ", placed.before)
                                : placed.after.empty() ? StrCat("after: ", kLastRecognised)
                                                       : StrCat("after: ", placed.after);
      for (const Rule& rule : placed.rules) {
        plugin_.rules.push_back({.name = std::string(rule.name()), .place = place});
      }
    }
    return absl::OkStatus();
  }

  PluginContents contents_;
  const std::vector<Plugin>& loaded_;
  OpRegistry ops_;
  std::vector<TextOp> new_ops_;
  std::vector<PlacedPass> rules_;
  Plugin plugin_;
};

}  // namespace

absl::StatusOr<Plugin> CommitPlugin(const std::string& path, PluginContents contents,
                                    const std::vector<Plugin>& loaded) {
  return Commit(std::move(contents), loaded).Run(path);
}

}  // namespace pagefuse
