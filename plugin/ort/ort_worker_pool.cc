// SPDX-License-Identifier: Apache-2.0
#include "plugin/ort/ort_worker_pool.h"

#include "pagefuse/base/usable_cpus.h"

namespace pagefuse::ort {

int OrtWorkerPool::size() const {
  static const int cpus = UsableCpus();
  return cpus;
}

void OrtWorkerPool::Run(int helpers, const Work& work) {
  const auto take_part = [](void* of, size_t worker) {
    const Work& shared = *static_cast<const Work*>(of);
    shared.run(shared.loop, static_cast<int>(worker));
  };
  const size_t workers = static_cast<size_t>(helpers) + 1;
  Status* status = kKernelContextParallelFor(api_, context_, take_part, workers, workers,
                                             const_cast<Work*>(&work));
  if (status == nullptr) return;
  kReleaseStatus(api_, status);
  work.run(work.loop, 0);  // whoever began before has taken its parts: what is left is ours
}

}  // namespace pagefuse::ort
