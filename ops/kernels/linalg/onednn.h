// SPDX-License-Identifier: Apache-2.0
// oneDNN's matrix products, each on the thread that calls it: what several threads do at once is
// for the worker pool alone to decide.
#pragma once

#include <cstdint>

namespace pagefuse {

// While one lives, oneDNN works on the thread that made it alone: its own threads are those of an
// OpenMP, which is told so for this thread. What the program does with OpenMP is left as it was.
// Every call of oneDNN that computes anything is made under one.
class OneDnnOnThisThread {
 public:
  OneDnnOnThisThread();
  ~OneDnnOnThisThread();
  OneDnnOnThisThread(const OneDnnOnThisThread&) = delete;
  OneDnnOnThisThread& operator=(const OneDnnOnThisThread&) = delete;

 private:
  int before_ = 0;  // threads of this thread's OpenMP teams; 0 if there is nothing to put back
};

// c = alpha * op(a) * op(b); op transposes where asked for. Matrices are row-major, rows lda, ldb,
// ldc elements apart: a is [m, k] or [k, m], b [k, n] or [n, k], c [m, n].
struct Sgemm {
  bool trans_a = false;
  bool trans_b = false;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  float alpha = 1.0f;
  const float* a = nullptr;
  int64_t lda = 0;
  const float* b = nullptr;
  int64_t ldb = 0;
  float* c = nullptr;
  int64_t ldc = 0;
};

// False, with anything in c, if oneDNN refuses. All three sizes are positive.
bool RunSgemm(const Sgemm& product);

// c [m, n] = (a - a_zero) * (b - b_zero) in int32, with a [m, k] of bytes, signed or not, b [k, n]
// of int8. Shared among the workers of the call; exact, so the same however it is cut.
struct ByteGemm {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  const void* a = nullptr;
  bool a_signed = false;
  int64_t lda = 0;
  int a_zero = 0;  // of a's type
  const int8_t* b = nullptr;
  int64_t ldb = 0;
  int8_t b_zero = 0;
  int32_t* c = nullptr;
  int64_t ldc = 0;
};
bool ParallelByteGemm(const ByteGemm& product);

}  // namespace pagefuse
