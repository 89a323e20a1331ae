// SPDX-License-Identifier: Apache-2.0
// Kernels of ops on CUDA devices, a family a source: each turns a call's arguments into the numbers and pointers that a launcher of
// ops/kernels/cuda takes.
#pragma once

#include <string_view>

#include "absl/status/status.h"

#include "pagefuse/ops/kernels/cuda/index_errors.h"
#include "pagefuse/ops/kernels/cuda/launch.h"
#include "pagefuse/ops/registry/registry.h"
#include "pagefuse/ops/schema/kernel.h"

namespace pagefuse::cuda {

// What a run's kernels are launched on.
Stream StreamOf(const KernelArgs& args);
// Where its kernels tell indices that are out of range.
IndexErrors IndexErrorsOf(const KernelArgs& args);
// OK, or Internal with the name of the error; whoever runs a node says which one it is.
absl::Status LaunchStatus(Error error);

// A kernel of an op that the registry has. One that it has not ends the program.
void AddKernelTo(OpRegistry& ops, std::string_view domain, std::string_view op, Kernel kernel);

void AddElementwiseKernels(OpRegistry& ops);      // chains, arithmetic, functions, casts
void AddMovementKernels(OpRegistry& ops);         // Gather, Concat, Split, Slice, Transpose, Expand
void AddIndexedMovementKernels(OpRegistry& ops);  // GatherND, ScatterND, ... by elements
void AddRowKernels(OpRegistry& ops);              // norms, softmax, reductions
void AddAddNormKernels(OpRegistry& ops);          // AddNorm
void AddTopKKernels(OpRegistry& ops);             // TopK, ArgMax, CumSum
void AddProductKernels(OpRegistry& ops);          // MatMul, Linear, GatedLinear
void AddGroupedProductKernels(OpRegistry& ops);   // GroupedMatMul
void AddInsertKernels(OpRegistry& ops);           // PagedCacheInsert, RopeCacheInsert
void AddAttentionKernels(OpRegistry& ops);        // PagedAttention, MergeAttnStates
void AddTurboQuantKernels(OpRegistry& ops);
void AddIndexerKernels(OpRegistry& ops);     // MqaLogits, PagedMqaLogits
void AddGroupedRowKernels(OpRegistry& ops);  // inserts and gathers of rows of codes
void AddRopeQuantKernels(OpRegistry& ops);   // rotations with codes behind them
void AddCompressKernels(OpRegistry& ops);    // the compressor's state and rows
void AddSlotKernels(OpRegistry& ops);        // indices to slots
void AddLatentKernels(OpRegistry& ops);      // SparseMlaAttention, SinkAttention
void AddHyperConnectionKernels(OpRegistry& ops);
void AddSamplingKernels(OpRegistry& ops);  // SampleTokens

}  // namespace pagefuse::cuda
