// SPDX-License-Identifier: Apache-2.0
// pagefuse ops: the ops that are known, and how each is computed.
#include <iostream>
#include <memory>

#include "tools/cli/command.h"
#include "tools/cli/device_flag.h"
#include "tools/cli/output.h"

#include "pagefuse/base/new_file.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/cuda/device_name.h"
#include "pagefuse/ops/registry/docs.h"
#include "pagefuse/ops/registry/registry.h"
#include "pagefuse/passes/edit/similar_names.h"

namespace pagefuse::tools {
namespace {

struct Flags {
  std::string name;
  std::string docs;
  std::string device = kHostDevice;
};

// " (float, float16)"; nothing for all types that the op takes.
std::string TypesOf(const Kernel& kernel) {
  std::string types;
  for (const DataType type : kernel.dtypes)
    StrAppend(&types, types.empty() ? "" : ", ", DataTypeName(type));
  return types.empty() ? "" : StrCat(" (", types, ")");
}

// Those of a device, with their types; what runs on the host has no kernel there. Empty: the op has none.
std::string KernelNames(const OpDef& op, Device device) {
  const bool is_host = device == Device::kCpu;
  std::string names;
  for (const Kernel& kernel : op.kernels()) {
    if (kernel.device != device) continue;
    StrAppend(&names, names.empty() ? "" : ", ", kernel.Description(),
              is_host ? "" : TypesOf(kernel));
  }
  if (is_host && op.has_decomposition())
    StrAppend(&names, names.empty() ? "" : ", ", "decomposition");
  return names;
}

// Kernels are listed where they cannot run, too: without a GPU, not without those kernels in the build.
absl::StatusOr<Device> DeviceToList(const std::string& name) {
  const auto ordinal = ParseDeviceName(name);
  if (!ordinal.ok()) return DeviceError(name, ordinal.status());
  if (!ordinal->has_value()) return Device::kCpu;
  for (const OpDef* op : OpRegistry::Global().ops()) {
    if (!KernelNames(*op, Device::kCuda).empty()) return Device::kCuda;
  }
  return DeviceError(name, NoCudaInBuild());
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
  PF_ASSIGN_OR_RETURN(const Device device, DeviceToList(flags.device));
  int found = 0;
  std::vector<std::string> names;
  for (const OpDef* op : OpRegistry::Global().ops()) {
    const std::string full = op->domain().empty() ? op->name() : op->domain() + "." + op->name();
    names.insert(names.end(), {full, op->name()});
    if (!flags.name.empty() && flags.name != full && flags.name != op->name()) continue;
    const std::string kernels = KernelNames(*op, device);
    if (device != Device::kCpu && flags.name.empty() && kernels.empty()) continue;
    std::cout << full << " since " << op->since() << ": " << kernels << "\n";
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
  AddDeviceFlag(command, flags->device,
                "whose kernels: cpu, or cuda with the types that they compute");
  command.AddText("--emit-docs", flags->docs,
                  "writes the reference into this folder: ops.md and pages in ops/");
}

}  // namespace pagefuse::tools
