// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/serve/access.h"

#include <algorithm>

#include "absl/strings/match.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse::serve {
namespace {

// Without the port; an address in brackets without them, where nothing but a port follows.
std::string_view HostName(std::string_view host) {
  if (host.starts_with('[')) {
    const size_t end = host.find(']');
    const bool whole =
        end != std::string_view::npos && (end + 1 == host.size() || host[end + 1] == ':');
    return whole ? host.substr(1, end - 1) : host;
  }
  const size_t colon = host.find(':');
  const bool one =
      colon != std::string_view::npos && host.find(':', colon + 1) == std::string_view::npos;
  return one ? host.substr(0, colon) : host;
}

// Looks at all bytes whatever they are: the time tells nothing of the key but its length.
bool IsEqual(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char differs = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    differs = static_cast<unsigned char>(differs | (a[i] ^ b[i]));
  }
  return differs == 0;
}

bool IsSameName(std::string_view a, std::string_view b) {
  return absl::EqualsIgnoreCase(AbslView(a), AbslView(b));
}

}  // namespace

bool IsLoopback(std::string_view host) {
  if (IsSameName(host, "localhost") || host == "::1") return true;
  const bool numeric =
      std::ranges::all_of(host, [](char c) { return (c >= '0' && c <= '9') || c == '.'; });
  return numeric && host.starts_with("127.") && std::ranges::count(host, '.') == 3;
}

absl::Status CheckHost(const HttpRequest& request, const std::string& own,
                       const std::vector<std::string>& allowed) {
  const std::string_view host = HostName(request.Header("host"));
  if (host.empty() || IsLoopback(host) || IsSameName(host, own)) return absl::OkStatus();
  const auto is_host = [&](const std::string& name) { return IsSameName(name, host); };
  if (std::ranges::any_of(allowed, is_host)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      StrCat("Host: expected a loopback name, ", own, " or one of --allowed-host"));
}

absl::Status CheckKey(const HttpRequest& request, const std::vector<std::string>& keys) {
  if (keys.empty()) return absl::OkStatus();
  constexpr std::string_view kBearer = "bearer ";
  std::string_view key = request.Header("x-api-key");
  const std::string_view authorization = request.Header("authorization");
  if (key.empty() && IsSameName(authorization.substr(0, kBearer.size()), kBearer)) {
    key = authorization.substr(kBearer.size());
  }
  bool found = false;
  for (const std::string& one : keys) found |= IsEqual(one, key);
  if (found && !key.empty()) return absl::OkStatus();
  return absl::UnauthenticatedError(
      "expected a key that the server knows, as Authorization: Bearer KEY or X-Api-Key: KEY");
}

}  // namespace pagefuse::serve
