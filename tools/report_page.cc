#include "tools/report_page.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <vector>

#include "absl/strings/str_replace.h"
#include "tools/command.h"
#include "tools/layer_picture.h"
#include "tools/output.h"

#include "pagefuse/ir/str_cat.h"
#include "pagefuse/passes/authoring/node_pairing.h"

namespace pagefuse::tools {
namespace {

constexpr std::string_view kHead = R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>pagefuse report</title><style>
body { font: 14px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em; color: #222; }
table { border-collapse: collapse; margin: .5em 0; } td, th { border: 1px solid #ccc; padding: .2em .6em; text-align: left; vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; } td.bad { background: #fbd5d5; }
pre, code { font: 12px/1.5 ui-monospace, monospace; } pre { overflow-x: auto; } a { color: #0550ae; text-decoration: none; }
:target { background: #fff3b0; } details { margin: .6em 0; } summary { cursor: pointer; }
svg { max-width: 100%; height: auto; } svg line { stroke: #999; } svg rect { fill: #f2f2f2; stroke: #888; } svg .fused rect { fill: #cfe8d5; stroke: #3a7d4d; }
svg text { font: 12px system-ui, sans-serif; text-anchor: middle; }
</style></head><body>
)";

std::string Number(double value, const char* format) {
  char text[48];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

std::string Text(const ReportJson& json) {
  return EscapeHtml(json.is_string() ? json.get<std::string>() : json.dump());
}

std::string Cell(const ReportJson& json) {
  return StrCat(json.is_number() ? "<td class=\"number\">" : "<td>", Text(json), "</td>");
}

std::string Section(std::string_view title, std::string_view body) {
  return StrCat("<h2>", title, "</h2>\n", body, "\n");
}

std::string FactsSection(const ReportJson& data) {
  const ReportJson& facts = data["facts"];
  std::string body = "<table>";
  const auto row = [&body](std::string_view name, const std::string& value) {
    if (!value.empty()) StrAppend(&body, "<tr><th>", name, "</th><td>", value, "</td></tr>");
  };
  row("model", Text(facts["model"]));
  row("producer", Text(facts["producer"]));
  row("opset", Text(facts["opset"]));
  row("nodes",
      StrCat(Text(facts["nodes_before"]), " before, ", Text(facts["nodes_after"]), " after"));
  row("constants", HumanBytes(facts["constant_bytes"].get<int64_t>()));
  row("not paged", Text(facts["not_paged"]));
  for (const auto& [name, value] : data["options"].items()) {
    row(EscapeHtml(name), Text(value));
  }
  row("numbers", Text(data["verify"]));
  if (data["cache"].contains("bytes_per_token")) {
    row("cache",
        StrCat(Text(data["cache"]["bytes_per_token"]), " bytes a token and ",
               Text(data["cache"]["bytes_per_sequence"]), " a sequence; all rows of tokens: ",
               Text(data["cache"]["bytes_per_token_of_all_rows"]), " bytes a token"));
  }
  return Section("Facts", body + "</table>");
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
  std::string body = "<table><tr><th>layer</th>";
  for (const std::string& op : ops) StrAppend(&body, "<th>", op, "</th>");
  body += "</tr>";
  for (const auto& [layer, counts] : source.layers.ops) {
    StrAppend(&body, "<tr><th>", layer, "</th>");
    for (const std::string& op : ops) {
      const auto count = counts.find(op);
      if (count == counts.end()) {
        StrAppend(&body, missing.contains(op) ? "<td class=\"bad\">none</td>" : "<td></td>");
        continue;
      }
      const auto node = first.find({layer, op});
      const std::string target = node == first.end() ? "" : node->second;
      StrAppend(&body, "<td class=\"number\"><a href=\"#", target, "\">", count->second,
                "</a></td>");
    }
    body += "</tr>";
  }
  return Section("Layers", body + "</table>");
}

std::string LeftoversSection(const ReportJson& data) {
  if (data["leftovers"].empty()) return Section("Left over", "<p>Nothing.</p>");
  std::string body;
  for (const ReportJson& left : data["leftovers"]) {
    StrAppend(&body, "<details open><summary>layer ", Text(left["layer"]), ", ", Text(left["op"]),
              " <code>", Text(left["value"]), "</code>: ", Text(left["family"]), "; ",
              left["rule"].get<std::string>().empty() ? "no rule resembles it" : Text(left["rule"]),
              "</summary><p>", Text(left["failed"]), "</p>");
    if (!left["side_by_side"].empty()) {
      body += "<table><tr><th>pattern</th><th>graph</th></tr>";
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
  return Section("Left over", body);
}

std::string RewritesSection(const ReportJson& data) {
  std::string body =
      "<table><tr><th>rule</th><th>pass</th><th>rewrites</th><th>equal</th><th>differ</th>"
      "<th>not compared</th><th></th></tr>";
  for (const ReportJson& rule : data["rewrites"]) {
    StrAppend(&body, "<tr>", Cell(rule["rule"]), Cell(rule["pass"]), Cell(rule["rewrites"]),
              Cell(rule["equal"]),
              rule["differ"] == 0 ? "<td></td>"
                                  : StrCat("<td class=\"bad\">", Text(rule["differ"]), "</td>"),
              Cell(rule["not_compared"]), Cell(rule["detail"]), "</tr>");
  }
  return Section("Rewrites", body + "</table>");
}

std::string TimesTable(std::string_view title, const ReportJson& times) {
  std::string body = StrCat(
      "<h3>", title, ": ", Number(times["milliseconds"], "%.2f"), " ms</h3><table><tr>",
      "<th>op (kernel)</th><th>nodes</th><th>ms</th><th>share</th><th>bytes of constants</th><th>bytes of cache</th>",
      "<th>GB/s</th></tr>");
  for (const ReportJson& op : times["ops"]) {
    StrAppend(&body, "<tr>", Cell(op["op"]), Cell(op["nodes"]), "<td class=\"number\">",
              Number(op["milliseconds"], "%.3f"), "</td><td class=\"number\">",
              Number(100 * op["share"].get<double>(), "%.1f %%"), "</td>",
              Cell(op["constant_bytes"]), Cell(op["cache_bytes"]), "<td class=\"number\">",
              Number(op["gigabytes_per_second"], "%.2f"), "</td></tr>");
  }
  return body + "</table>";
}

std::string TimesSection(const ReportJson& data) {
  if (!data.contains("times")) return "";
  const ReportJson& times = data["times"];
  if (times.contains("refused")) {
    return Section("Times", StrCat("<p>Not measured: ", Text(times["refused"]), "</p>"));
  }
  std::string body = TimesTable("Prefill of 512 tokens", times["prefill"]) +
                     TimesTable("One token more", times["decode"]);
  body += "<details><summary>Kernels, and why others were refused</summary><pre>";
  for (const ReportJson& line : times["kernels"]) StrAppend(&body, Text(line), "\n");
  return Section("Times", body + "</pre></details>");
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
              LayerPicture(nodes), "</details>");
  }
  return body.empty() ? "" : Section("Layers as pictures", body);
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
  return StrCat("<details><summary>", title, ": ", graph.num_nodes(), " nodes</summary><pre>", text,
                "</pre></details>");
}

}  // namespace

std::string EscapeHtml(std::string_view text) {
  return absl::StrReplaceAll(AbslView(text),
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

std::string ReportPage(const ReportSource& source, const ReportJson& data) {
  std::string page(kHead);
  StrAppend(&page, "<h1>", EscapeHtml(source.path), "</h1>\n", FactsSection(data),
            LayersSection(source), LeftoversSection(data), TimesSection(data),
            RewritesSection(data), PicturesSection(source));
  page += Section("Graphs", GraphListing("After", "after", *source.after.graph) +
                                GraphListing("Before", "before", *source.before.graph));
  // "</script>" in a name would end the element.
  StrAppend(&page, "<script type=\"application/json\" id=\"report\">",
            absl::StrReplaceAll(JsonText(data), {{"</", "<\\/"}}), "</script>\n</body></html>\n");
  return page;
}

}  // namespace pagefuse::tools
