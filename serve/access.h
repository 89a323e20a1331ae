// SPDX-License-Identifier: Apache-2.0
// Who may call: hosts by which the server is named, and keys.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

#include "pagefuse/serve/http.h"

namespace pagefuse::serve {

// PermissionDenied for a Host that is neither loopback, nor `own`, nor one of `allowed`: a page from elsewhere
// that gave its own name this machine's address (DNS rebinding) has such a one.
absl::Status CheckHost(const HttpRequest& request, const std::string& own,
                       const std::vector<std::string>& allowed);

// Unauthenticated unless `Authorization: Bearer KEY` or `X-Api-Key: KEY` has one of the keys; OK if there are
// none. Takes as long for each wrong key.
absl::Status CheckKey(const HttpRequest& request, const std::vector<std::string>& keys);

// True for 127.0.0.0/8, ::1 and localhost.
bool IsLoopback(std::string_view host);

}  // namespace pagefuse::serve
