// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/serve/http_head.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse::serve {
namespace {

absl::Status BadHead(std::string_view what) {
  return absl::InvalidArgumentError(StrCat("header: ", what));
}

bool IsNamed(std::string_view line, std::string_view name) {
  return line.size() > name.size() && line[name.size()] == ':' &&
         absl::EqualsIgnoreCase({line.data(), name.size()}, {name.data(), name.size()});
}

std::string_view ValueOf(std::string_view line) {
  std::string_view value = line.substr(line.find(':') + 1);
  while (!value.empty() && (value.front() == ' ' || value.front() == '\t')) value.remove_prefix(1);
  while (!value.empty() && (value.back() == ' ' || value.back() == '\t')) value.remove_suffix(1);
  return value;
}

// Of all header fields what decides where a body ends.
struct Framing {
  int lengths = 0, encodings = 0, hosts = 0;
  bool is_old = false;  // of HTTP/1.0, which has no chunks

  absl::Status Add(std::string_view line) {
    if (IsNamed(line, "content-length")) {
      ++lengths;
      const std::string_view value = ValueOf(line);
      const bool digits = !value.empty() && value.size() <= 18 &&
                          std::ranges::all_of(value, [](char c) { return c >= '0' && c <= '9'; });
      if (!digits) return BadHead("Content-Length: expected a number");
    } else if (IsNamed(line, "transfer-encoding")) {
      ++encodings;
      const std::string_view value = ValueOf(line);
      if (!absl::EqualsIgnoreCase({value.data(), value.size()}, "chunked")) {
        return BadHead("Transfer-Encoding: expected chunked alone");
      }
    } else if (IsNamed(line, "host")) {
      ++hosts;
    }
    return absl::OkStatus();
  }

  absl::Status Check() const {
    if (lengths > 1) return BadHead("Content-Length: expected one, got more");
    if (encodings > 1) return BadHead("Transfer-Encoding: expected one, got more");
    if (lengths + encodings > 1) {
      return BadHead("expected Content-Length or Transfer-Encoding, got both");
    }
    if (is_old && encodings > 0) return BadHead("Transfer-Encoding: expected none of HTTP/1.0");
    if (hosts > 1) return BadHead("Host: expected one, got more");
    return absl::OkStatus();
  }
};

// RFC 9110, section 5.6.2.
bool IsTokenByte(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
         std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

absl::Status CheckFieldLine(std::string_view line) {
  if (line.front() == ' ' || line.front() == '\t') {
    return BadHead("a line that goes on in the next one is not taken");
  }
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || colon == 0) return BadHead("expected name: value");
  const char before = line[colon - 1];
  if (before == ' ' || before == '\t') return BadHead("white space before a colon");
  if (!std::ranges::all_of(line.substr(0, colon), IsTokenByte)) {
    return BadHead("a name has letters, digits and some signs, no others");
  }
  return absl::OkStatus();
}

absl::Status CheckRequestLine(std::string_view line) {
  const size_t first = line.find(' '), last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) {
    return BadHead("expected a method, a target and a version");
  }
  const std::string_view target = line.substr(first + 1, last - first - 1);
  const bool plain = std::ranges::all_of(target, [](char c) { return c > ' ' && c < 0x7f; });
  if (target.empty() || target.front() != '/' || !plain) {
    return BadHead("target: expected a path that begins with /");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckHead(std::string_view head) {
  Framing framing;
  bool first = true;
  for (size_t begin = 0; begin < head.size();) {
    const size_t end = head.find_first_of(std::string_view("\r\n\0", 3), begin);
    if (end == std::string_view::npos || head.substr(end, 2) != "\r\n") {
      return BadHead("expected lines that end with CR and LF, and no NUL");
    }
    const std::string_view line = head.substr(begin, end - begin);
    begin = end + 2;
    if (first) {
      PF_RETURN_IF_ERROR(CheckRequestLine(line));
      framing.is_old = line.ends_with(" HTTP/1.0");
      first = false;
      continue;
    }
    if (line.empty()) break;
    PF_RETURN_IF_ERROR(CheckFieldLine(line));
    PF_RETURN_IF_ERROR(framing.Add(line));
  }
  return framing.Check();
}

}  // namespace pagefuse::serve
