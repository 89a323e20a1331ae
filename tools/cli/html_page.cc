// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/html_page.h"

#include <algorithm>
#include <cctype>
#include <cstdio>

#include "absl/strings/str_replace.h"
#include "tools/cli/html_style.h"
#include "tools/cli/output.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse::tools {

std::string EscapeHtml(std::string_view text) {
  return absl::StrReplaceAll(AbslView(text),
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

std::string Breakable(std::string_view name) {
  const auto is = [name](size_t i, int (*kind)(int)) {
    return i < name.size() && kind(static_cast<unsigned char>(name[i])) != 0;
  };
  std::string text;
  for (size_t i = 0; i < name.size(); ++i) {
    const bool word =
        i > 0 && is(i, std::isupper) && is(i - 1, std::islower) && is(i + 1, std::islower);
    if (word || (i > 0 && (name[i - 1] == '.' || name[i - 1] == '-'))) text += "<wbr>";
    text += EscapeHtml(name.substr(i, 1));
  }
  return text;
}

std::string Number(double value, const char* format) {
  char text[48];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

// The keyboard scrolls what it can move to.
std::string Wide(std::string_view label, std::string_view html) {
  return StrCat("<div class=\"wide\" role=\"region\" tabindex=\"0\" aria-label=\"",
                EscapeHtml(label), "\">", html, "</div>");
}

std::string Table(const HtmlTable& table, std::string_view rows) {
  std::string head;
  for (size_t i = 0; i < table.titles.size(); ++i) {
    StrAppend(
        &head,
        table.numbers.contains(i) ? "<th scope=\"col\" class=\"number\">" : "<th scope=\"col\">",
        table.titles[i], "</th>");
  }
  if (!head.empty()) head = StrCat("<thead><tr>", head, "</tr></thead>");
  return Wide(
      table.caption,
      StrCat("<table><caption", table.shows_caption ? "" : " class=\"aloud\"", ">",
             EscapeHtml(table.caption), "</caption>", head, "<tbody>", rows, "</tbody></table>"));
}

std::string RowTitle(std::string_view html) { return StrCat("<th scope=\"row\">", html, "</th>"); }

std::string NumberCell(std::string_view html) {
  return StrCat("<td class=\"number\">", html, "</td>");
}

std::string BarCell(double share, std::string_view html) {
  return StrCat("<td class=\"share\" style=\"--part:",
                Number(100 * std::clamp(share, 0.0, 1.0), "%.1f"), "\">", html, "</td>");
}

std::string PageText(const HtmlPage& page) {
  std::string links, body;
  for (const HtmlSection& section : page.sections) {
    if (section.body.empty()) continue;
    StrAppend(&links, "<a href=\"#", section.id, "\">", section.title, "</a>");
    StrAppend(&body, "<h2 id=\"", section.id, "\">", section.title, "</h2>\n", section.body, "\n");
  }
  const std::string title = EscapeHtml(page.title);
  // "</script>" in a name would end the element.
  const std::string json = absl::StrReplaceAll(JsonText(page.data), {{"</", "<\\/"}});
  return StrCat("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">",
                "<meta name=\"viewport\" content=\"width=device-width\"><title>", title, " - ",
                page.kind, "</title><style>", kHtmlStyle, "</style></head><body>\n",
                "<a class=\"skip\" href=\"#main\">To the content</a>\n",
                "<nav aria-label=\"Sections\">", links, "</nav>\n<main id=\"main\">\n<h1>", title,
                "</h1>\n", body, "</main>\n<script type=\"application/json\" id=\"", page.data_id,
                "\">", json, "</script>\n</body></html>\n");
}

}  // namespace pagefuse::tools
