// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/pagefuse/cache/insert_op.h"

#include <string>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse::pagefuse_ops {

absl::StatusOr<PagedBytes> ReadPaged(const KernelArgs& args, int cache) {
  const TensorArg& tensor = args.input(cache);
  PagedBytes paged = {tensor.dim(0), tensor.dim(1), tensor.block_bytes()};
  if (tensor.dims.size() == 2) {
    PF_ASSIGN_OR_RETURN(paged.block_size, args.node->IntAttribute("block_size", kTokensPerBlock));
  }
  return paged;
}

OpDef::ValidateFn ValidSlots(const InsertPorts& ports) {
  return [ports](const KernelArgs& args) -> absl::Status {
    PF_ASSIGN_OR_RETURN(const PagedBytes paged, ReadPaged(args, ports.cache));
    return CheckSlots(args, ports.slot_mapping, paged);
  };
}

absl::StatusOr<GroupedInsert> MakeGroupedInsert(const KernelArgs& args, const InsertPorts& ports,
                                                const GroupedRowFormat& format) {
  PF_ASSIGN_OR_RETURN(const PagedBytes paged, ReadPaged(args, ports.cache));
  const TensorArg& source = args.input(0);
  const int64_t element_bytes = BitWidth(source.dtype) / 8;
  GroupedInsert insert;
  insert.format = format;
  insert.rows = GroupedRows(format, paged, args.output(0).data);
  insert.source_type = source.dtype;
  insert.coded = source.as<const uint8_t>();
  insert.coded_stride = insert.plain_stride = source.dim(1) * element_bytes;
  if (insert.coded != nullptr) insert.plain = insert.coded + format.coded * element_bytes;
  insert.writes = SlotWrites(args.input(ports.slot_mapping));
  return insert;
}

OpDef& DeclareInsert(OpDef& op, RunFn plain, RunFn vectorised) {
  op.Types("I", {DataType::kInt64, DataType::kInt32});
  for (size_t output = 0; output < op.outputs().size(); ++output) {
    for (size_t input = 0; input < op.inputs().size(); ++input) {
      const std::string& cache = op.inputs()[input].name;
      if (!cache.ends_with("_cache") || op.outputs()[output].name != StrCat(cache, "_out"))
        continue;
      op.Alias(static_cast<int>(output), static_cast<int>(input));
    }
  }
  return op.AddKernel({.name = "reference", .run = plain})
      .AddKernel({.name = "hwy", .priority = 10, .run = vectorised});
}

}  // namespace pagefuse::pagefuse_ops
