// SPDX-License-Identifier: Apache-2.0
// Rows of the table that cuda_bench prints: what is timed, what bounds it, and what it should reach.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gpu.h"

namespace pagefuse::cuda_bench {

// What the machine did at most in this run.
struct Ceilings {
  double copy = 0, read = 0;        // GB/s; copies count what is read and what is written
  double product = 0;               // TFLOP/s of a product in bfloat16; 0: there is no cuBLASLt
  double node = 0, overlapped = 0;  // us of a dependent node of a graph: plainly, programmatic
  double launch = 0;                // us of a launch on the host
};
Ceilings MeasureCeilings(const Gpu& gpu);

enum class Bound { kCopy, kRead, kProduct };

// A share of a ceiling, and what should be reached of it; or, where `us` is given, the time that should not
// be passed.
struct Target {
  Bound bound = Bound::kCopy;
  double share = 0;
  double us = 0;
};

// What one call takes: bytes that it must move, or operations of products.
struct Measured {
  Timing timing;
  double amount = 0;
};

struct Row {
  std::string name;
  Target target;
  std::function<Measured(const Gpu&)> measure;
};

void AddCacheRows(std::vector<Row>& rows);
void AddIndexerRows(std::vector<Row>& rows);
void AddLatentRows(std::vector<Row>& rows);
void AddNormRows(std::vector<Row>& rows);
void AddProductRows(std::vector<Row>& rows);
void AddSamplingRows(std::vector<Row>& rows);
void AddSlotRows(std::vector<Row>& rows);
void AddSparseRows(std::vector<Row>& rows);

}  // namespace pagefuse::cuda_bench
