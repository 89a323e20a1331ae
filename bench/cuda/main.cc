// SPDX-License-Identifier: Apache-2.0
// cuda_bench: the kernels of ops/kernels/cuda beside what the machine can do.
//
//   cuda_bench [ROWS] [--json FILE] [--markdown FILE]
//
// ROWS: a part of the names of rows; all without it. First come the ceilings: a copy, a read, a product by
// cuBLASLt, a launch, a node of a graph. Then each row, on sets of tensors that are larger than the cache
// and take turns, as nodes of a graph, 40 times: time, share of its ceiling, the share or time that it
// should reach. Exit status 77 where there is no GPU. peers.py beside this file times torch at the
// sizes of some rows, and takes the JSON of a run to compare.
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "rows.h"

namespace pagefuse::cuda_bench {
namespace {

struct Result {
  const Row* row;
  Measured measured;
  double share = 0;  // of the ceiling; 0: it is not known
  bool passed = false;
};

const char* NameOf(Bound bound) {
  constexpr const char* kNames[] = {"copy", "read", "product"};
  return kNames[static_cast<int>(bound)];
}

double CeilingOf(Bound bound, const Ceilings& ceilings) {
  if (bound == Bound::kRead) return ceilings.read * 1e3;  // bytes a us
  if (bound == Bound::kProduct) return ceilings.product * 1e6;
  return ceilings.copy * 1e3;
}

Result Judge(const Row& row, const Measured& measured, const Ceilings& ceilings) {
  Result result{.row = &row, .measured = measured};
  const double ceiling = CeilingOf(row.target.bound, ceilings);
  if (ceiling > 0) result.share = measured.amount / measured.timing.us / ceiling;
  result.passed =
      row.target.us > 0 ? measured.timing.us <= row.target.us : result.share >= row.target.share;
  return result;
}

std::string Text(const char* format, auto... values) {
  char text[256];
  std::snprintf(text, sizeof(text), format, values...);
  return text;
}

std::string TargetOf(const Row& row) {
  if (row.target.us > 0) return Text("%.0f us", row.target.us);
  return Text("%.0f %% of %s", 100 * row.target.share, NameOf(row.target.bound));
}

std::string Line(const Result& r) {
  return Text("| %s | %.1f us | %.0f %% of %s | %s | %s | %.1f %% |", r.row->name.c_str(),
              r.measured.timing.us, 100 * r.share, NameOf(r.row->target.bound),
              TargetOf(*r.row).c_str(), r.passed ? "pass" : "miss", 100 * r.measured.timing.spread);
}

std::string Header(const Gpu& gpu, const Ceilings& c) {
  return Text("%s, %d SMs, L2 %zu MiB\n\n", gpu.name.c_str(), gpu.sms, gpu.l2_bytes >> 20) +
         Text(
             "| copy | read | product | launch | graph node, programmatic |\n|---|---|---|---|---|\n"
             "| %.0f GB/s | %.0f GB/s | %.0f TFLOP/s | %.2f us | %.2f, %.2f us |\n",
             c.copy, c.read, c.product, c.launch, c.node, c.overlapped) +
         "\n| row | time | share | target | | spread |\n|---|---|---|---|---|---|\n";
}

std::string Json(const Gpu& gpu, const Ceilings& c, const std::vector<Result>& results) {
  std::string text = Text(
      "{\"gpu\": \"%s\", \"copy_gbps\": %.1f, \"read_gbps\": %.1f, \"product_tflops\": %.1f, "
      "\"launch_us\": %.3f, \"node_us\": %.3f, ",
      gpu.name.c_str(), c.copy, c.read, c.product, c.launch, c.node);
  text += Text("\"programmatic_node_us\": %.3f, \"rows\": [", c.overlapped);
  const char* separator = "";
  for (const Result& r : results) {
    text +=
        Text("%s\n {\"row\": \"%s\", \"us\": %.3f, \"spread\": %.4f, \"share\": %.4f, ", separator,
             r.row->name.c_str(), r.measured.timing.us, r.measured.timing.spread, r.share);
    text += Text("\"bound\": \"%s\", \"target_share\": %.3f, \"target_us\": %.1f, \"pass\": %s}",
                 NameOf(r.row->target.bound), r.row->target.share, r.row->target.us,
                 r.passed ? "true" : "false");
    separator = ",";
  }
  return text + "\n]}\n";
}

int Run(int argc, char** argv) {
  std::string wanted, json, markdown;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
      json = argv[++i];
    } else if (std::strcmp(argv[i], "--markdown") == 0 && i + 1 < argc) {
      markdown = argv[++i];
    } else {
      wanted = argv[i];
    }
  }
  const Gpu gpu = OpenGpu();
  std::vector<Row> rows;
  AddCacheRows(rows);
  AddIndexerRows(rows);
  AddLatentRows(rows);
  AddNormRows(rows);
  AddSamplingRows(rows);
  AddSlotRows(rows);
  AddProductRows(rows);
  AddSparseRows(rows);
  const Ceilings ceilings = MeasureCeilings(gpu);
  std::string table = Header(gpu, ceilings);
  std::printf("%s", table.c_str());
  std::vector<Result> results;
  for (const Row& row : rows) {
    if (row.name.find(wanted) == std::string::npos) continue;
    results.push_back(Judge(row, row.measure(gpu), ceilings));
    const std::string line = Line(results.back()) + "\n";
    std::printf("%s", line.c_str());
    std::fflush(stdout);
    table += line;
  }
  if (!json.empty()) std::ofstream(json) << Json(gpu, ceilings, results);
  if (!markdown.empty()) std::ofstream(markdown) << table;
  return 0;
}

}  // namespace
}  // namespace pagefuse::cuda_bench

int main(int argc, char** argv) { return pagefuse::cuda_bench::Run(argc, argv); }
