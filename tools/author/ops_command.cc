// pagefuse ops: the ops that are known, and how each is computed.
#include <iostream>
#include <memory>

#include "tools/cli/command.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/registry/docs.h"
#include "pagefuse/ops/registry/registry.h"
#include "pagefuse/passes/edit/similar_names.h"

namespace pagefuse::tools {
namespace {

struct Flags {
  std::string name;
  bool docs = false;
};

std::string KernelNames(const OpDef& op) {
  std::string names;
  for (const Kernel& kernel : op.kernels())
    StrAppend(&names, names.empty() ? "" : ", ", kernel.Description());
  if (op.has_decomposition()) StrAppend(&names, names.empty() ? "" : ", ", "decomposition");
  return names;
}

absl::Status Ops(const Flags& flags) {
  if (flags.docs) {
    std::cout << OpsReference(OpRegistry::Global());
    return absl::OkStatus();
  }
  int found = 0;
  std::vector<std::string> names;
  for (const OpDef* op : OpRegistry::Global().ops()) {
    const std::string full = op->domain().empty() ? op->name() : op->domain() + "." + op->name();
    names.insert(names.end(), {full, op->name()});
    if (!flags.name.empty() && flags.name != full && flags.name != op->name()) continue;
    std::cout << full << " since " << op->since() << ": " << KernelNames(*op) << "\n";
    if (!flags.name.empty() && !op->doc().empty()) std::cout << "  " << op->doc() << "\n";
    ++found;
  }
  if (found == 0)
    return absl::NotFoundError(
        StrCat("there is no op \"", flags.name, "\"", SimilarNames(flags.name, names)));
  return absl::OkStatus();
}

}  // namespace

void AddOpsCommand(Command app, Outcome& outcome) {
  auto flags = std::make_shared<Flags>();
  Command command = app.AddCommand("ops", "lists the ops and their kernels",
                                   [flags, &outcome] { outcome.status = Ops(*flags); });
  command.AddText("name", flags->name, "one op only");
  command.AddFlag("--emit-docs", flags->docs, "the reference page as markdown");
}

}  // namespace pagefuse::tools
