// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/serve/page.h"

#include <array>
#include <string>

#include "pagefuse/base/str_cat.h"

namespace pagefuse::serve {
namespace {

// As CMake wrote it from page.html.
constexpr std::string_view kPage =
#include "page_text.inc"
    ;

// A part that is served as a file, so that the policy forbids all that is inline: a text that got into the page as
// markup would do nothing.
struct PagePart {
  std::string_view path, type;
  std::string_view begin, end;  // what stands around it
  bool with_ends;               // which are part of it
  std::string_view link;        // what the page has in its place
};
constexpr std::array<PagePart, 3> kParts = {{
    {"/page.css", "text/css", "<style>\n", "</style>", false,
     "<link rel=\"stylesheet\" href=\"page.css\">"},
    {"/page.js", "text/javascript", "<script>\n", "</script>", false,
     "<script src=\"page.js\"></script>"},
    {"/page.svg", "image/svg+xml", "<svg ", "</svg>", true, ""},
}};

std::string_view TextOf(const PagePart& part) {
  const size_t begin = kPage.find(part.begin), end = kPage.find(part.end, begin);
  if (part.with_ends) return kPage.substr(begin, end + part.end.size() - begin);
  return kPage.substr(begin + part.begin.size(), end - begin - part.begin.size());
}

std::string WithLinks() {
  std::string page(kPage);
  for (const PagePart& part : kParts) {
    if (part.link.empty()) continue;
    const size_t begin = page.find(part.begin), end = page.find(part.end, begin);
    page.replace(begin, end + part.end.size() - begin, part.link);
  }
  return page;
}

Headers PageHeaders(std::string_view type) {
  return {{"Content-Type", StrCat(type, "; charset=utf-8")},
          {"Content-Security-Policy",
           "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
          {"X-Content-Type-Options", "nosniff"},
          {"Referrer-Policy", "no-referrer"},
          {"Cache-Control", "no-cache"}};
}

}  // namespace

std::optional<PageFile> FindPageFile(std::string_view path) {
  static const std::string& page = *new std::string(WithLinks());
  if (path == "/") return PageFile{page, PageHeaders("text/html")};
  for (const PagePart& part : kParts) {
    if (path == part.path) return PageFile{TextOf(part), PageHeaders(part.type)};
  }
  return std::nullopt;
}

}  // namespace pagefuse::serve
