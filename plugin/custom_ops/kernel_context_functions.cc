// SPDX-License-Identifier: Apache-2.0
// What a kernel asks for while it computes.
#include <utility>
#include <vector>

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/tensor/tensor.h"
#include "pagefuse/plugin/custom_ops/answers.h"
#include "pagefuse/plugin/custom_ops/table.h"

namespace pagefuse::ort {
namespace {

Status* InputCount(const KernelContext* context, size_t* count) {
  *count = context->args.inputs.size();
  return nullptr;
}

Status* OutputCount(const KernelContext* context, size_t* count) {
  *count = context->args.outputs.size();
  return nullptr;
}

// Null for one that the node omits.
Status* Input(const KernelContext* context, size_t i, const Value** value) {
  const bool given = i < context->inputs.size() && context->inputs[i].arg.present();
  *value = given ? &context->inputs[i] : nullptr;
  return nullptr;
}

// Whether the graph wants that output.
bool IsWanted(const KernelContext& context, size_t i) {
  return i < context.outputs.size() && context.args.node->output(static_cast<int>(i)) != nullptr;
}

Status* Output(KernelContext* context, size_t i, const int64_t* dims, size_t rank, Value** value) {
  *value = nullptr;
  if (!IsWanted(*context, i)) return nullptr;
  std::optional<Value>& output = context->outputs[i];
  const std::vector<int64_t> asked(dims, dims + rank);
  if (output && output->arg.dims != asked) {
    return Refuse(ErrorCode::kInvalidArgument,
                  StrCat("output ", i, " is asked for with shape ", DimsToString(asked),
                         ", and was with ", DimsToString(output->arg.dims)));
  }
  if (!output) {
    const absl::Status placed = context->placer.Place(static_cast<int>(i), asked);
    if (!placed.ok()) {
      // The library will say of it what it likes; this is what went wrong.
      if (context->failed.ok()) context->failed = placed;
      return ToAnswer(placed);
    }
    output = Value{context->args.outputs[i]};
  }
  *value = &*output;
  return nullptr;
}

Status* GetLogger(const KernelContext* context, const Logger** logger) {
  *logger = &context->logger;
  return nullptr;
}

Status* GetAllocator(const KernelContext* /*context*/, const MemoryInfo* /*memory*/,
                     Allocator** allocator) {
  *allocator = &CpuAllocator();
  return nullptr;
}

Status* ScratchBuffer(const KernelContext* context, const MemoryInfo* /*memory*/, size_t bytes,
                      void** out) {
  *out = nullptr;
  if (bytes == 0) return nullptr;
  absl::StatusOr<std::shared_ptr<Buffer>> buffer = Buffer::Allocate(bytes);
  if (!buffer.ok()) return ToAnswer(buffer.status());
  *out = (*buffer)->data();
  // The context is const in this call alone.
  const_cast<KernelContext*>(context)->scratch.push_back(*std::move(buffer));
  return nullptr;
}

// The processor has no stream, and no resources by number.
Status* Stream(const KernelContext* /*context*/, void** stream) {
  *stream = nullptr;
  return nullptr;
}

Status* Resource(const KernelContext* /*context*/, int /*version*/, int /*id*/, void** resource) {
  *resource = nullptr;
  return nullptr;
}

// Calls run(data, i) for each i below `total` on the threads of the session. `batches` is what the
// library thinks they should be shared out in.
Status* ForEach(const KernelContext* /*context*/, void (*run)(void*, size_t), size_t total,
                size_t /*batches*/, void* data) {
  if (run == nullptr) return nullptr;
  ParallelTasks(static_cast<int64_t>(total), [&](int64_t i) { run(data, static_cast<size_t>(i)); });
  return nullptr;
}

}  // namespace

void FillKernelContext(const TableFiller& table) {
  table.Set(kKernelContextGetInputCount, InputCount);
  table.Set(kKernelContextGetOutputCount, OutputCount);
  table.Set(kKernelContextGetInput, Input);
  table.Set(kKernelContextGetOutput, Output);
  table.Set(kKernelContextGetLogger, GetLogger);
  table.Set(kKernelContextGetAllocator, GetAllocator);
  table.Set(kKernelContextGetScratchBuffer, ScratchBuffer);
  table.Set(kKernelContextGetGpuComputeStream, Stream);
  table.Set(kKernelContextGetResource, Resource);
  table.Set(kKernelContextParallelFor, ForEach);
}

}  // namespace pagefuse::ort
