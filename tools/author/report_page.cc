// SPDX-License-Identifier: Apache-2.0
#include "tools/author/report_page.h"

#include <cstdio>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "tools/author/layer_picture.h"
#include "tools/cli/command.h"
#include "tools/cli/html_page.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/debug/node_pairing.h"

namespace pagefuse::tools {
namespace {

std::string Text(const ReportJson& json) {
  return EscapeHtml(json.is_string() ? json.get<std::string>() : json.dump());
}

// Nothing for nothing, so that what is there stands out.
std::string CountCell(const ReportJson& count) { return NumberCell(count == 0 ? "" : Text(count)); }

std::string BytesCell(const ReportJson& bytes) {
  return NumberCell(bytes == 0 ? "" : HumanBytes(bytes.get<int64_t>()));
}

std::string FactsSection(const ReportJson& data) {
  const ReportJson& facts = data["facts"];
  std::string body;
  const auto row = [&body](std::string_view name, const std::string& value) {
    if (!value.empty()) StrAppend(&body, "<tr>", RowTitle(name), "<td>", value, "</td></tr>");
  };
  row("model", StrCat("<code>", Text(facts["model"]), "</code>"));
  row("producer", Text(facts["producer"]));
  row("opset", Text(facts["opset"]));
  row("nodes",
      StrCat(Text(facts["nodes_before"]), " before, ", Text(facts["nodes_after"]), " after"));
  row("constants", HumanBytes(facts["constant_bytes"].get<int64_t>()));
  row("not paged", Text(facts["not_paged"]));
  for (const auto& [name, value] : data["options"].items()) {
    row(EscapeHtml(name), Text(value));
  }
  row("rewrites", Text(data["verify"]));
  if (data["cache"].contains("bytes_per_token")) {
    row("cache",
        StrCat(Text(data["cache"]["bytes_per_token"]), " bytes a token and ",
               Text(data["cache"]["bytes_per_sequence"]), " a sequence; all rows of tokens: ",
               Text(data["cache"]["bytes_per_token_of_all_rows"]), " bytes a token"));
  }
  return Table({.caption = "What the model is", .titles = {}, .shows_caption = false}, body);
}

// The id of the first node of that op in a layer.
std::map<std::pair<int, std::string>, std::string> FirstNodes(const ReportSource& source) {
  std::map<std::pair<int, std::string>, std::string> first;
  int position = 0;
  for (const auto& node : source.after.graph->nodes()) {
    const auto layer = source.layers.nodes.find(node.get());
    if (layer != source.layers.nodes.end()) {
      first.try_emplace({layer->second, node->op_type()}, StrCat("after", position));
    }
    ++position;
  }
  return first;
}

std::string LayersSection(const ReportSource& source) {
  std::set<std::string> ops;
  for (const auto& [layer, counts] : source.layers.ops) {
    for (const auto& [op, count] : counts) ops.insert(op);
  }
  std::set<std::string> missing;
  for (const LayerReport::Missing& one : source.layers.missing) missing.insert(one.op);
  const auto first = FirstNodes(source);
  std::vector<std::string> titles = {"layer"};
  std::set<size_t> numbers;
  for (const std::string& op : ops) {
    numbers.insert(titles.size());
    titles.push_back(Breakable(op));
  }
  std::string body;
  for (const auto& [layer, counts] : source.layers.ops) {
    StrAppend(&body, "<tr>", RowTitle(StrCat(layer)));
    for (const std::string& op : ops) {
      const auto count = counts.find(op);
      if (count == counts.end()) {
        StrAppend(&body, missing.contains(op) ? "<td class=\"number bad\">none</td>" : "<td></td>");
        continue;
      }
      const auto node = first.find({layer, op});
      const std::string target = node == first.end() ? "" : node->second;
      StrAppend(&body, "<td class=\"number\"><a href=\"#", target, "\">", count->second,
                "</a></td>");
    }
    body += "</tr>";
  }
  return Table({.caption = "Fused ops by layer", .titles = titles, .numbers = numbers}, body);
}

std::string LeftoversSection(const ReportJson& data) {
  if (data["leftovers"].empty()) {
    return "<p class=\"note\">Every place of a known family fused.</p>";
  }
  std::string body;
  for (const ReportJson& left : data["leftovers"]) {
    StrAppend(&body, "<details open class=\"left\"><summary>layer ", Text(left["layer"]), ", ",
              Text(left["op"]), " <code>", Text(left["value"]), "</code>: ", Text(left["family"]),
              "; ",
              left["rule"].get<std::string>().empty() ? "no rule resembles it" : Text(left["rule"]),
              "</summary><p>", Text(left["failed"]), "</p>");
    if (!left["side_by_side"].empty()) {
      body +=
          "<table class=\"sides\"><caption class=\"aloud\">The rule beside the graph</caption><thead><tr>"
          "<th scope=\"col\">pattern</th><th scope=\"col\">graph</th></tr></thead>";
      for (const ReportJson& side : left["side_by_side"]) {
        StrAppend(
            &body, "<tr><td><code>", Text(side[0]), "</code></td><td>",
            side[1].get<std::string>().empty() ? "-" : StrCat("<code>", Text(side[1]), "</code>"),
            "</td></tr>");
      }
      body += "</table>";
    }
    body += "</details>";
  }
  return body;
}

std::string RewritesSection(const ReportJson& data) {
  std::string rows;
  for (const ReportJson& rule : data["rewrites"]) {
    const bool same_name = rule["rule"] == rule["pass"];
    StrAppend(
        &rows, "<tr>", RowTitle(Breakable(rule["rule"].get<std::string>())), "<td>",
        same_name ? "" : Breakable(rule["pass"].get<std::string>()), "</td>",
        CountCell(rule["rewrites"]), CountCell(rule["equal"]),
        rule["differ"] == 0 ? "<td></td>"
                            : StrCat("<td class=\"number bad\">", Text(rule["differ"]), "</td>"),
        CountCell(rule["not_compared"]), "<td class=\"note\">", Text(rule["detail"]), "</td></tr>");
  }
  return Table(
      {.caption = "How often each rule fired, and what became of the numbers",
       .titles = {"rule", "of pass", "rewrites", "equal", "differ", "not compared", "detail"},
       .numbers = {2, 3, 4, 5}},
      rows);
}

std::string TimesRow(std::string_view name, const ReportJson& op, std::string_view style) {
  const std::string share = Number(100 * op["share"].get<double>(), "%.1f");
  return StrCat("<tr", style, ">", RowTitle(name), CountCell(op["nodes"]),
                NumberCell(Number(op["milliseconds"], "%.3f")), BarCell(op["share"], share + " %"),
                BytesCell(op["constant_bytes"]), BytesCell(op["cache_bytes_read"]),
                BytesCell(op["cache_bytes_written"]),
                NumberCell(Number(op["gigabytes_per_second"], "%.2f")), "</tr>");
}

// What takes less than this goes into one row.
constexpr double kShareOfRest = 0.01;

std::string TimesTable(std::string_view title, const ReportJson& times) {
  std::string rows;
  ReportJson rest = {{"nodes", 0},          {"milliseconds", 0.0},   {"share", 0.0},
                     {"constant_bytes", 0}, {"cache_bytes_read", 0}, {"cache_bytes_written", 0}};
  int others = 0;
  for (const ReportJson& op : times["ops"]) {
    if (op["share"].get<double>() >= kShareOfRest) {
      rows += TimesRow(Breakable(op["op"].get<std::string>()), op, "");
      continue;
    }
    ++others;
    for (auto& [key, value] : rest.items()) {
      value = value.is_number_float() ? ReportJson(value.get<double>() + op[key].get<double>())
                                      : ReportJson(value.get<int64_t>() + op[key].get<int64_t>());
    }
  }
  if (others > 0) {
    const double bytes = rest["constant_bytes"].get<double>() +
                         rest["cache_bytes_read"].get<double>() +
                         rest["cache_bytes_written"].get<double>();
    const double milliseconds = rest["milliseconds"];
    rest["gigabytes_per_second"] = milliseconds > 0 ? bytes / milliseconds / 1e6 : 0;
    rows += TimesRow(StrCat(others, " others, each less than 1 %"), rest, " class=\"rest\"");
  }
  return StrCat("<h3>", title, ": ", Number(times["milliseconds"], "%.2f"), " ms</h3>",
                Table({.caption = StrCat(title, " by op and kernel"),
                       .titles = {"op (kernel)", "nodes", "ms", "share", "weights", "cache read",
                                  "cache written", "GB/s"},
                       .numbers = {1, 2, 3, 4, 5, 6, 7}},
                      rows));
}

std::string TimesSection(const ReportJson& data) {
  if (!data.contains("times")) return "";
  const ReportJson& times = data["times"];
  if (times.contains("refused")) {
    return StrCat("<p>Not measured: ", Text(times["refused"]), "</p>");
  }
  std::string body = TimesTable("Prefill of 512 tokens", times["prefill"]) +
                     TimesTable("One token more", times["decode"]);
  body += "<details><summary>Kernels, and why others were refused</summary><pre tabindex=\"0\">";
  for (const ReportJson& line : times["kernels"]) StrAppend(&body, Text(line), "\n");
  return body + "</pre></details>";
}

// What one layer of each kind is made of: from one attention to the next.
std::string PicturesSection(const ReportSource& source) {
  std::map<std::string, int> kinds;  // the ops, and the first layer that has them
  std::string body;
  for (const auto& [layer, ops] : source.layers.ops) {
    std::string text;
    for (const auto& [op, count] : ops) StrAppend(&text, op, count, " ");
    if (!kinds.try_emplace(text, layer).second) continue;
    std::vector<const Node*> nodes;
    for (const auto& node : source.after.graph->nodes()) {
      const auto found = source.layers.nodes.find(node.get());
      if (found != source.layers.nodes.end() && found->second == layer) nodes.push_back(node.get());
    }
    constexpr size_t kMostDrawn = 400;
    if (nodes.size() > kMostDrawn) nodes.resize(kMostDrawn);
    StrAppend(&body, "<details><summary>layer ", layer, ", ", nodes.size(), " nodes</summary>",
              Wide(StrCat("Picture of layer ", layer),
                   LayerPicture(nodes, StrCat("The ", nodes.size(), " nodes of layer ", layer))),
              "</details>");
  }
  return body;
}

std::string ValueLink(const Value* value, const std::map<const Node*, std::string>& ids) {
  if (value == nullptr) return "&quot;&quot;";
  const auto id = ids.find(value->producer());
  const std::string name = EscapeHtml(value->name());
  return id == ids.end() ? name : StrCat("<a href=\"#", id->second, "\">", name, "</a>");
}

// The nodes as text; what they read leads to who computes it.
std::string GraphListing(std::string_view title, std::string_view prefix, const Graph& graph) {
  if (graph.num_nodes() > kMostListed) {
    return StrCat("<p>", title, ": ", graph.num_nodes(), " nodes, more than are listed here.</p>");
  }
  std::map<const Node*, std::string> ids;
  for (const auto& node : graph.nodes()) ids[node.get()] = StrCat(prefix, ids.size());
  std::string text;
  for (const auto& node : graph.nodes()) {
    StrAppend(&text, "<span id=\"", ids[node.get()], "\">");
    for (int i = 0; i < node->num_outputs(); ++i) {
      StrAppend(&text, i > 0 ? ", " : "",
                node->output(i) == nullptr ? "" : EscapeHtml(node->output(i)->name()));
    }
    StrAppend(&text, " = ", EscapeHtml(OpText(*node)), "(");
    for (int i = 0; i < node->num_inputs(); ++i) {
      StrAppend(&text, i > 0 ? ", " : "", ValueLink(node->input(i), ids));
    }
    text += ")</span>\n";
  }
  return StrCat("<details><summary>", title, ": ", graph.num_nodes(),
                " nodes</summary><pre tabindex=\"0\">", text, "</pre></details>");
}

}  // namespace

std::string ReportPage(const ReportSource& source, const ReportJson& data) {
  return PageText({.title = source.path,
                   .kind = "pagefuse report",
                   .sections = {{"facts", "Facts", FactsSection(data)},
                                {"layers", "Layers", LayersSection(source)},
                                {"left", "Left over", LeftoversSection(data)},
                                {"times", "Times", TimesSection(data)},
                                {"rewrites", "Rewrites", RewritesSection(data)},
                                {"pictures", "Layers as pictures", PicturesSection(source)},
                                {"graphs", "Graphs",
                                 GraphListing("After", "after", *source.after.graph) +
                                     GraphListing("Before", "before", *source.before.graph)}},
                   .data_id = "report",
                   .data = data});
}

}  // namespace pagefuse::tools
