// SPDX-License-Identifier: Apache-2.0
// pagefuse ops: the ops that are known, and how each is computed.
#include <iostream>
#include <memory>

#include "tools/cli/command.h"
#include "tools/cli/output.h"

#include "pagefuse/base/new_file.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/registry/docs.h"
#include "pagefuse/ops/registry/registry.h"
#include "pagefuse/passes/edit/similar_names.h"

namespace pagefuse::tools {
namespace {

struct Flags {
  std::string name;
  std::string docs;
};

std::string KernelNames(const OpDef& op) {
  std::string names;
  for (const Kernel& kernel : op.kernels())
    StrAppend(&names, names.empty() ? "" : ", ", kernel.Description());
  if (op.has_decomposition()) StrAppend(&names, names.empty() ? "" : ", ", "decomposition");
  return names;
}

absl::Status WriteReference(const std::string& folder) {
  PF_RETURN_IF_ERROR(MakeFolder(folder + "/ops"));
  for (const ReferencePage& page : OpsReference()) {
    PF_RETURN_IF_ERROR(WriteWholeFile(StrCat(folder, "/", page.path), page.text));
  }
  return absl::OkStatus();
}

absl::Status Ops(const Flags& flags) {
  if (!flags.docs.empty()) return WriteReference(flags.docs);
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
  command.AddText("--emit-docs", flags->docs,
                  "writes the reference into this folder: ops.md and pages in ops/");
}

}  // namespace pagefuse::tools
