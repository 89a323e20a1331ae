// SPDX-License-Identifier: Apache-2.0
// What the tests on a device found, by op and by export: docs/gpu.md has it as tables.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace pagefuse {

// Where cases come from: the tables of tests/ops, such cases in other sizes, the recorded cases of
// tests/golden, those of the standard.
enum class CaseKind { kTable, kRandom, kGolden, kStandard };

class Report {
 public:
  static Report& Get();

  // A case that ran on the device.
  void Add(std::string_view op, CaseKind kind, bool passed);
  // One that did not: why the device's kernels refuse it.
  void AddHostStep(std::string_view op, std::string_view reason);
  // A whole graph: a row of the second table.
  void AddGraph(std::string_view graph, std::string_view cache, bool passed,
                std::string_view findings);

  bool empty() const { return ops_.empty() && graphs_.empty(); }
  // The tables, in Markdown.
  std::string Text() const;

 private:
  struct Count {
    int64_t passed = 0, failed = 0;
  };
  struct Op {
    std::array<Count, 4> counts;  // by CaseKind
    std::map<std::string, int64_t> host_steps;
  };
  struct GraphRow {
    std::string graph, cache, findings;
    bool passed;
  };

  std::map<std::string, Op, std::less<>> ops_;
  std::vector<GraphRow> graphs_;
};

// Failures of the test that runs, so far.
int FailuresSoFar();

}  // namespace pagefuse
