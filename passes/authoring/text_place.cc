#include "pagefuse/passes/authoring/text_place.h"

#include <algorithm>
#include <utility>

#include "pagefuse/ir/str_cat.h"

namespace pagefuse {

absl::Status ErrorAt(std::string_view path, std::string_view text, size_t offset,
                     std::string_view message) {
  offset = std::min(offset, text.size());
  const std::string_view before = text.substr(0, offset);
  const size_t start = before.rfind('\n') + 1;  // 0 where there is none
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const size_t column = offset - start;
  return absl::InvalidArgumentError(StrCat(path, ":", line, ":", column + 1, ": ", message, "\n",
                                           text.substr(start, text.find('\n', start) - start), "\n",
                                           std::string(column, ' '), "^"));
}

PlaceError ErrorsIn(std::string path, std::string_view text) {
  return [path = std::move(path), text](std::string_view at, std::string_view message) {
    const bool inside = at.data() >= text.data() && at.data() <= text.data() + text.size();
    return ErrorAt(path, text, inside ? at.data() - text.data() : text.size(), message);
  };
}

}  // namespace pagefuse
