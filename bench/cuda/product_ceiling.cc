// SPDX-License-Identifier: Apache-2.0
#include "product_ceiling.h"

#include <cublasLt.h>
#include <dlfcn.h>

namespace pagefuse::cuda_bench {
namespace {

constexpr int kSize = 8192;
constexpr size_t kWorkspace = size_t{64} << 20;

// cuBLASLt, opened while the program runs.
class CublasLt {
 public:
  CublasLt() {
    for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12"}) {
      if (library_ == nullptr) library_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
  }
  bool is_open() const { return library_ != nullptr; }
  // Calls the function of that name, which must succeed.
  template <typename Function, typename... Args>
  void Call(Function, const char* name, Args... args) const {
    auto function = reinterpret_cast<Function>(dlsym(library_, name));
    Check(function == nullptr ? 1 : static_cast<int>(function(args...)));
  }

 private:
  void* library_ = nullptr;
};

}  // namespace

double ProductCeiling(const Gpu& gpu) {
  const CublasLt lt;
  if (!lt.is_open()) return 0;
#define PF_LT(function, ...) lt.Call(&function, #function, __VA_ARGS__)
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t layout = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  PF_LT(cublasLtCreate, &handle);
  PF_LT(cublasLtMatmulDescCreate, &product, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  const cublasOperation_t across = CUBLAS_OP_T;
  PF_LT(cublasLtMatmulDescSetAttribute, product, CUBLASLT_MATMUL_DESC_TRANSA, &across,
        sizeof(across));
  PF_LT(cublasLtMatrixLayoutCreate, &layout, CUDA_R_16BF, uint64_t{kSize}, uint64_t{kSize},
        int64_t{kSize});
  PF_LT(cublasLtMatmulPreferenceCreate, &preference);
  PF_LT(cublasLtMatmulPreferenceSetAttribute, preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
        &kWorkspace, sizeof(kWorkspace));
  cublasLtMatmulHeuristicResult_t found = {};
  int count = 0;
  PF_LT(cublasLtMatmulAlgoGetHeuristic, handle, product, layout, layout, layout, layout, preference,
        1, &found, &count);
  if (count == 0) return 0;
  constexpr size_t kBytes = size_t{kSize} * kSize * 2;
  const Memory a(gpu, kBytes, Fill::kBfloat16, 1), b(gpu, kBytes, Fill::kBfloat16, 2);
  const Memory c(gpu, kBytes, Fill::kZeros), workspace(gpu, kWorkspace, Fill::kZeros);
  const float one = 1, zero = 0;
  const Timing timing = TimePlainly(gpu, [&] {
    PF_LT(cublasLtMatmul, handle, product, &one, a.as(), layout, b.as(), layout, &zero, c.as(),
          layout, c.as(), layout, &found.algo, workspace.as(), kWorkspace, gpu.stream);
  });
#undef PF_LT
  return 2.0 * kSize * kSize * kSize / timing.us / 1e6;
}

}  // namespace pagefuse::cuda_bench
