// SPDX-License-Identifier: Apache-2.0
// What one client may cost the server.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace pagefuse::serve {

struct Limits {
  size_t body_bytes = size_t{4} << 20;     // beyond: 413
  size_t header_bytes = size_t{16} << 10;  // beyond: 431
  size_t target_bytes = size_t{2} << 10;   // beyond: 414
  size_t connections = 1024;               // beyond: 503, and closed
  int64_t waiting_requests = 256;          // that no step has begun; beyond: 429 with Retry-After
  size_t unread_bytes =
      size_t{1} << 20;  // of a stream that a client does not read; beyond: cancelled
  std::chrono::milliseconds header = std::chrono::seconds(10);  // from its first byte to its end
  std::chrono::milliseconds body = std::chrono::seconds(60);
  std::chrono::milliseconds idle = std::chrono::seconds(75);   // between two requests
  std::chrono::milliseconds stall = std::chrono::seconds(60);  // without a byte that is read
  std::chrono::milliseconds ping = std::chrono::seconds(15);   // of quiet in a stream
  std::chrono::milliseconds drain = std::chrono::seconds(30);  // what runs may take at the end
};

}  // namespace pagefuse::serve
