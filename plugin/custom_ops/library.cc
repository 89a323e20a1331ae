// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/plugin/custom_ops/library.h"

#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/plugin/custom_ops/hosted_op.h"
#include "pagefuse/plugin/custom_ops/library_call.h"
#include "pagefuse/plugin/custom_ops/row.h"
#include "pagefuse/plugin/custom_ops/table.h"

namespace pagefuse {
namespace {

using ort::Row;
using RowsByOp = std::map<std::pair<std::string, std::string>, std::vector<Row>>;

absl::StatusOr<RowsByOp> ReadRows(const ort::SessionOptions& options) {
  RowsByOp ops;
  for (const auto& domain : options.domains) {
    for (const ort::CustomOp* op : domain->rows) {
      PF_ASSIGN_OR_RETURN(Row row, ort::ReadRow(*op, domain->name));
      ops[{row.domain, row.name}].push_back(std::move(row));
    }
  }
  return ops;
}

absl::Status Register(void* register_ops, ort::SessionOptions& options) {
  auto* const run = reinterpret_cast<ort::RegisterCustomOps*>(register_ops);
  return ort::CallLibrary([&] { return run(&options, &ort::HostApiBase()); });
}

}  // namespace

absl::StatusOr<RegisteredOps> LookAtOps(void* register_ops,
                                        const std::map<std::string, std::string>& config) {
  ort::SessionOptions options{.config = config};
  PF_RETURN_IF_ERROR(Register(register_ops, options));
  RegisteredOps registered;
  for (const auto& domain : options.domains) {
    for (const ort::CustomOp* op : domain->rows)
      registered.names[domain->name].insert(op->name(op));
    registered.rows += static_cast<int>(domain->rows.size());
  }
  return registered;
}

absl::StatusOr<std::vector<OpDef>> HostedOps(void* register_ops, const std::string& library) {
  ort::SessionOptions options;
  PF_RETURN_IF_ERROR(Register(register_ops, options));
  absl::StatusOr<RowsByOp> rows = RowsByOp();
  PF_RETURN_IF_ERROR(ort::CallLibrary([&]() -> ort::Status* {
    rows = ReadRows(options);
    return nullptr;
  }));
  PF_RETURN_IF_ERROR(rows.status());
  std::vector<OpDef> ops;
  for (auto& [name, of_op] : *rows) {
    PF_ASSIGN_OR_RETURN(OpDef op, ort::HostedOp(std::move(of_op), library));
    ops.push_back(std::move(op));
  }
  return ops;
}

}  // namespace pagefuse
