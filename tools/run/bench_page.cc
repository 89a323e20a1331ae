// SPDX-License-Identifier: Apache-2.0
// The measurements of `pagefuse bench --html` as a page: lines over depth, length and batch, and a table
// of all.
#include <algorithm>
#include <map>

#include "tools/cli/html_page.h"
#include "tools/cli/line_chart.h"
#include "tools/run/bench_table.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse::tools {
namespace {

using Rows = std::vector<BenchRow>;

enum class Axis { kLength, kDepth, kBatch };

int64_t PlaceOf(const BenchRow& row, Axis axis) {
  return axis == Axis::kBatch ? row.batch : axis == Axis::kDepth ? row.depth : row.tokens;
}

// What stays the same along a line, in words; the formats first. But for the cache, what is the same
// everywhere says nothing.
std::string LineName(const BenchRow& row, Axis axis, const Rows& rows) {
  const auto differs = [&rows](auto member) {
    return std::ranges::any_of(rows,
                               [&](const BenchRow& one) { return one.*member != rows[0].*member; });
  };
  std::string name = differs(&BenchRow::weights) ? StrCat(row.weights, ", ", row.cache) : row.cache;
  if (axis != Axis::kLength && differs(&BenchRow::tokens)) StrAppend(&name, ", ", row.tokens);
  if (axis != Axis::kDepth && differs(&BenchRow::depth)) StrAppend(&name, ", at ", row.depth);
  if (axis != Axis::kBatch && differs(&BenchRow::batch)) StrAppend(&name, ", batch ", row.batch);
  return name;
}

std::string Figure(std::string title, std::string x_title, Axis axis, const Rows& rows) {
  LineChart chart{
      .title = std::move(title), .x_title = std::move(x_title), .y_title = "tokens a second"};
  std::map<std::string, std::map<int64_t, double>> lines;
  std::vector<std::string> order;
  for (const BenchRow& row : rows) {
    const std::string name = LineName(row, axis, rows);
    if (!lines.contains(name)) order.push_back(name);
    lines[name][PlaceOf(row, axis)] = SpreadOf(row.tokens_per_second).mean;
  }
  for (const std::string& name : order) {
    chart.lines.push_back({name, {lines[name].begin(), lines[name].end()}});
  }
  return ChartFigure(chart);
}

std::string Figures(const Rows& rows) {
  Rows prompts, generated;
  for (const BenchRow& row : rows) (row.generates ? generated : prompts).push_back(row);
  std::string figures;
  if (!generated.empty()) {
    figures += Figure("Generating, by depth", "tokens of context", Axis::kDepth, generated);
    figures += Figure("Generating, by batch", "sequences at once", Axis::kBatch, generated);
  }
  if (!prompts.empty()) {
    figures += Figure("Reading prompts, by length", "tokens of the prompt", Axis::kLength, prompts);
    figures += Figure("Reading prompts, by batch", "sequences at once", Axis::kBatch, prompts);
  }
  if (!figures.empty()) return figures;
  return "<p class=\"note\">Several depths (<code>-d</code>), lengths (<code>-p</code>) or batches "
         "(<code>-b</code>) make lines here.</p>";
}

std::string AllRows(const Rows& rows) {
  double most = 0;
  for (const BenchRow& row : rows) most = std::max(most, SpreadOf(row.tokens_per_second).mean);
  std::string html;
  for (const BenchRow& row : rows) {
    const Spread spread = SpreadOf(row.tokens_per_second);
    StrAppend(&html, "<tr>", RowTitle(EscapeHtml(row.test)), "<td>", EscapeHtml(row.weights),
              "</td><td>", EscapeHtml(row.cache), "</td>", NumberCell(StrCat(row.batch)),
              BarCell(most > 0 ? spread.mean / most : 0, Number(spread.mean, "%.2f")),
              NumberCell(Number(spread.deviation, "%.2f")),
              NumberCell(Number(row.load_seconds, "%.2f")), "</tr>");
  }
  return Table(
      {.caption = "All measurements: mean and deviation of the repetitions",
       .titles = {"test", "weights", "cache", "batch", "tokens a second", "+-", "seconds to load"},
       .numbers = {3, 4, 5, 6}},
      html);
}

}  // namespace

std::string BenchPage(const std::string& model, const std::vector<BenchRow>& rows) {
  return PageText({.title = model,
                   .kind = "pagefuse bench",
                   .sections = {{"speed", "Speed", Figures(rows)}, {"all", "All", AllRows(rows)}},
                   .data_id = "bench",
                   .data = BenchJson(rows)});
}

}  // namespace pagefuse::tools
