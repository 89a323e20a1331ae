// SPDX-License-Identifier: Apache-2.0
// The page at /: a conversation with the model that is served, in a browser (page.html).
#pragma once

#include <optional>
#include <string_view>

#include "pagefuse/serve/http.h"

namespace pagefuse::serve {

struct PageFile {
  std::string_view body;
  Headers headers;
};

// Of "/" and of the files that it asks for, /page.css, /page.js and /page.svg; none for other paths.
std::optional<PageFile> FindPageFile(std::string_view path);

}  // namespace pagefuse::serve
