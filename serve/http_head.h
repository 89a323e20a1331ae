// SPDX-License-Identifier: Apache-2.0
// Looks at the head of a request before it is parsed: what one server reads so and another one otherwise is
// how requests are smuggled past a proxy.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace pagefuse::serve {

// `head`: all up to the empty line and with it. InvalidArgument for a CR or LF that is not CRLF, a NUL, a
// line that goes on in the next one, white space before a colon, more than one Content-Length or Host,
// Content-Length beside Transfer-Encoding, a length that is no number, an encoding other than chunked or of
// HTTP/1.0, a target that is no path, and for an empty line before the request.
// Source: RFC 9112, sections 2.2, 3.2, 5.1, 5.2, 6.1 and 6.3.
absl::Status CheckHead(std::string_view head);

}  // namespace pagefuse::serve
