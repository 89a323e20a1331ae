// SPDX-License-Identifier: Apache-2.0
#include "report.h"

#include <gtest/gtest.h>

#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

// A cell of a table cannot hold its border.
std::string Cell(std::string_view text) {
  std::string cell;
  for (const char c : text) {
    if (c == '|') cell += '\\';
    cell += c == '\n' ? ' ' : c;
  }
  return cell;
}

}  // namespace

Report& Report::Get() {
  static auto* report = new Report;
  return *report;
}

void Report::Add(std::string_view op, CaseKind kind, bool passed) {
  Count& count = ops_[std::string(op)].counts[static_cast<size_t>(kind)];
  ++(passed ? count.passed : count.failed);
}

void Report::AddHostStep(std::string_view op, std::string_view reason) {
  ++ops_[std::string(op)].host_steps[std::string(reason)];
}

void Report::AddGraph(std::string_view graph, std::string_view cache, bool passed,
                      std::string_view findings) {
  graphs_.push_back({.graph = std::string(graph),
                     .cache = std::string(cache),
                     .findings = std::string(findings),
                     .passed = passed});
}

std::string Report::Text() const {
  std::string text =
      "| op | case tables | other sizes | golden cases | cases of ONNX | failed | run by the host |\n"
      "|---|---|---|---|---|---|---|\n";
  for (const auto& [name, op] : ops_) {
    StrAppend(&text, "| ", name);
    int64_t failed = 0;
    for (const Count& count : op.counts) {
      StrAppend(&text, " | ", count.passed);
      failed += count.failed;
    }
    StrAppend(&text, failed == 0 ? " | 0" : StrCat(" | **", failed, "**"), " |");
    const char* separator = " ";
    for (const auto& [reason, count] : op.host_steps) {
      StrAppend(&text, separator, count, ": ", Cell(reason));
      separator = "; ";
    }
    StrAppend(&text, " |\n");
  }
  if (graphs_.empty()) return text;
  StrAppend(&text, "\n| graph | cache | result | |\n|---|---|---|---|\n");
  for (const GraphRow& row : graphs_) {
    StrAppend(&text, "| ", row.graph, " | ", row.cache, " | ", row.passed ? "passed" : "**failed**",
              " | ", Cell(row.findings), " |\n");
  }
  return text;
}

int FailuresSoFar() {
  const ::testing::TestInfo* test = ::testing::UnitTest::GetInstance()->current_test_info();
  return test == nullptr ? 0 : test->result()->total_part_count();
}

}  // namespace pagefuse
