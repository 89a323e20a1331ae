// SPDX-License-Identifier: Apache-2.0
#include "tools/run/bench_table.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tools/cli/command.h"
#include "tools/cli/output.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse::tools {
namespace {

using Line = std::vector<std::string>;

const Line kNames = {"model", "weights", "cache", "batch", "test", "tokens/s", "+-"};
const Line kDeviceNames = {"ms a step", "on the device"};
constexpr size_t kFirstNumber = 5;  // columns from here on stand to the right

std::string Milliseconds(double value) {
  return value > 0 ? absl::StrFormat("%.2f", value) : std::string();
}

std::vector<Line> Lines(const std::vector<BenchRow>& rows) {
  const bool on_device =
      std::ranges::any_of(rows, [](const BenchRow& row) { return row.device_ms > 0; });
  std::vector<Line> lines = {kNames};
  if (on_device) lines[0].insert(lines[0].end(), kDeviceNames.begin(), kDeviceNames.end());
  for (const BenchRow& row : rows) {
    const Spread spread = SpreadOf(row.tokens_per_second);
    lines.push_back({row.model, row.weights, row.cache, std::to_string(row.batch), row.test,
                     absl::StrFormat("%.2f", spread.mean),
                     absl::StrFormat("%.2f", spread.deviation)});
    if (!on_device) continue;
    lines.back().push_back(Milliseconds(row.step_ms));
    lines.back().push_back(Milliseconds(row.device_ms));
  }
  return lines;
}

std::vector<size_t> Widths(const std::vector<Line>& lines) {
  std::vector<size_t> widths(lines[0].size());
  for (const Line& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  return widths;
}

std::string Padded(const std::string& text, size_t width, bool right) {
  const std::string blanks(width - text.size(), ' ');
  return right ? blanks + text : text + blanks;
}

std::string Joined(const Line& line, const std::vector<size_t>& widths, std::string_view between) {
  std::string text;
  for (size_t i = 0; i < line.size(); ++i) {
    StrAppend(&text, i > 0 ? between : std::string_view(),
              Padded(line[i], widths[i], i >= kFirstNumber));
  }
  return text;
}

std::string Text(const std::vector<Line>& lines) {
  const std::vector<size_t> widths = Widths(lines);
  std::string text;
  for (const Line& line : lines) StrAppend(&text, Joined(line, widths, "  "), "\n");
  return text;
}

std::string Markdown(const std::vector<Line>& lines) {
  const std::vector<size_t> widths = Widths(lines);
  std::string text;
  for (size_t i = 0; i < lines.size(); ++i) {
    StrAppend(&text, "| ", Joined(lines[i], widths, " | "), " |\n");
    if (i > 0) continue;
    text += "|";
    for (size_t c = 0; c < widths.size(); ++c) {
      text += c >= kFirstNumber ? " ---: |" : " --- |";
    }
    text += "\n";
  }
  return text;
}

// Quoted where it must be.
std::string CsvField(const std::string& field) {
  if (field.find_first_of(",\"\n") == std::string::npos) return field;
  std::string quoted = "\"";
  for (char c : field) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

std::string Csv(const std::vector<Line>& lines) {
  std::string text;
  for (const Line& line : lines) {
    Line fields;
    for (const std::string& field : line) fields.push_back(CsvField(field));
    StrAppend(&text, absl::StrJoin(fields, ","), "\n");
  }
  return text;
}

std::string Json(const std::vector<BenchRow>& rows) {
  std::vector<std::string> models;
  if (!rows.empty()) models.push_back(rows[0].model);
  const nlohmann::ordered_json found = {{"rows", BenchJson(rows)},
                                        {"peak_memory_bytes", PeakMemoryBytes()}};
  return JsonText(JsonResult("bench", models, found), 2) + "\n";
}

}  // namespace

Spread SpreadOf(const std::vector<double>& values) {
  Spread spread;
  if (values.empty()) return spread;
  const auto count = static_cast<double>(values.size());
  for (double value : values) spread.mean += value / count;
  if (values.size() < 2) return spread;
  for (double value : values) {
    spread.deviation += (value - spread.mean) * (value - spread.mean) / (count - 1);
  }
  spread.deviation = std::sqrt(spread.deviation);
  return spread;
}

nlohmann::ordered_json BenchJson(const std::vector<BenchRow>& rows) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const BenchRow& row : rows) {
    const Spread spread = SpreadOf(row.tokens_per_second);
    list.push_back({{"model", row.model},
                    {"weights", row.weights},
                    {"cache", row.cache},
                    {"batch", row.batch},
                    {"test", row.generates ? "generate" : "prompt"},
                    {"tokens", row.tokens},
                    {"depth", row.depth},
                    {"load_seconds", row.load_seconds},
                    {"mean_tokens_per_second", spread.mean},
                    {"deviation", spread.deviation},
                    {"tokens_per_second", row.tokens_per_second}});
    if (row.device_ms == 0) continue;
    list.back()["step_milliseconds"] = row.step_ms;
    list.back()["device_milliseconds"] = row.device_ms;
  }
  return list;
}

absl::StatusOr<std::string> BenchTable(const std::vector<BenchRow>& rows, std::string_view format) {
  if (format == "text") return Text(Lines(rows));
  if (format == "md") return Markdown(Lines(rows));
  if (format == "csv") return Csv(Lines(rows));
  if (format == "json") return Json(rows);
  return absl::InvalidArgumentError(
      StrCat("--format: expected text, md, csv or json, got \"", format, "\""));
}

}  // namespace pagefuse::tools
