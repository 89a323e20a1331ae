// SPDX-License-Identifier: Apache-2.0
// Runs the loops of kernels on the threads of the host's session.
#pragma once

#include "plugin/ort/ort_abi.h"

#include "pagefuse/base/parallel.h"

namespace pagefuse::ort {

// The pool of the session that makes a call; lives as long as the call. Threads of our own beside
// those of the host, which spin while they wait for work, would wait for a CPU.
class OrtWorkerPool final : public WorkerPool {
 public:
  OrtWorkerPool(Api* api, const KernelContext* context) : api_(api), context_(context) {}

  // As many as there may be: the host does not tell. Where the session has fewer, its threads take
  // the calls of the others after their own, and find nothing left.
  int size() const override;
  void Run(int helpers, const Work& work) override;

 private:
  Api* const api_;
  const KernelContext* const context_;
};

}  // namespace pagefuse::ort
