#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fails with every line that goes past the one way to share work (base/parallel.h): OpenMP, threads of one's own in the libraries, and
# oneDNN outside the files that hold it to the calling thread.
set -uo pipefail
found=0
search() {  # pattern, pathspecs...
  git grep -nE "$@" && found=1
}
search '#pragma omp|omp\.h|OpenMP::|fopenmp' -- '*.cc' '*.cu' '*.h' '*CMakeLists.txt' '*.cmake' '*.in' CMakePresets.json
# A thread that draws a line on the terminal shares no work, nor one that steps the engine while a question is typed.
search 'std::(thread|async|jthread)\b|pthread_create' -- base ir ops passes plugin runtime text tools ':!base/thread_pool.*' ':!base/usable_cpus.cc' ':!tools/cli/progress_line.*' ':!tools/run/chat_loop.cc'
search 'include "dnnl' -- '*.cc' '*.h' ':!ops/kernels/linalg/onednn.cc' ':!ops/onnx/conv.cc' ':!ops/kernels/linalg/cpu_features.cc'
exit $found
