// SPDX-License-Identifier: Apache-2.0
// Makes the HTML pages of commands, in one style: a page is a file that needs nothing else and runs no
// script. It is light or dark as the reader's system is, and all of it can be reached by keyboard and
// read aloud.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"

namespace pagefuse::tools {

std::string EscapeHtml(std::string_view text);
// With places where a long name may break: "Compress<wbr>Cache<wbr>Insert", behind dots and dashes.
std::string Breakable(std::string_view name);
// By a format of printf.
std::string Number(double value, const char* format);

// A part of a page that its navigation leads to. `body` is HTML; a section without one is left out.
struct HtmlSection {
  std::string id, title, body;
};

struct HtmlTable {
  std::string caption;
  std::vector<std::string> titles;  // HTML
  std::set<size_t> numbers = {};    // columns that hold such
  bool shows_caption = true;        // else it is read aloud alone
};
// A table that scrolls by itself where it is wider than the page. `rows` is HTML; the first cell of
// each, a th with scope="row", names the row.
std::string Table(const HtmlTable& table, std::string_view rows);
std::string RowTitle(std::string_view html);
std::string NumberCell(std::string_view html);
// A bar behind the text, `share` of 0 to 1 of the cell.
std::string BarCell(double share, std::string_view html);
// What is wider than the page, and scrolls by itself.
std::string Wide(std::string_view label, std::string_view html);

// `kind` is what the page is: "pagefuse report". `data` is embedded as JSON in the element that is
// called `data_id`.
struct HtmlPage {
  std::string title, kind;
  std::vector<HtmlSection> sections;
  std::string data_id;
  nlohmann::ordered_json data;
};
std::string PageText(const HtmlPage& page);

}  // namespace pagefuse::tools
