// SPDX-License-Identifier: Apache-2.0
// Any bytes are a head that is taken or refused; one that is taken can be read in one way only.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/serve/http_head.h"

namespace {

int64_t Count(const std::vector<absl::string_view>& lines, absl::string_view name) {
  return std::ranges::count_if(
      lines, [&](absl::string_view line) { return absl::StartsWithIgnoreCase(line, name); });
}

// What must be so of a head that was taken, however it is looked at.
void CheckTaken(absl::string_view head) {
  const size_t end = head.find("\r\n\r\n");
  if (end != absl::string_view::npos) head = head.substr(0, end);
  PF_CHECK(head.find('\0') == absl::string_view::npos);
  std::vector<absl::string_view> lines = absl::StrSplit(head, "\r\n");
  for (const absl::string_view line : lines) {
    PF_CHECK(line.find_first_of("\r\n") == absl::string_view::npos);
  }
  lines.erase(lines.begin());  // the request itself
  PF_CHECK(Count(lines, "content-length:") + Count(lines, "transfer-encoding:") <= 1);
  PF_CHECK(Count(lines, "host:") <= 1);
  PF_CHECK(Count(lines, " ") + Count(lines, "\t") == 0);
  PF_CHECK(Count(lines, "content-length ") + Count(lines, "transfer-encoding ") == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view head(reinterpret_cast<const char*>(data), size);
  if (pagefuse::serve::CheckHead(head).ok() && !head.empty()) CheckTaken({head.data(), size});
  return 0;
}
