// SPDX-License-Identifier: Apache-2.0
// Bytes to a port of this machine and back, as no client of HTTP sends and reads them.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace pagefuse::serve {

// What comes at last in a test comes within this.
inline constexpr std::chrono::seconds kPatience(20);

// False where it did not become so within kPatience.
bool Becomes(const std::function<bool()>& check);

// A whole reply.
struct RawReply {
  int status = 0;
  std::string head, body;  // of chunks what they hold
  std::vector<std::string> chunks;
  bool whole = false;  // false: the connection ended before
};

class RawClient {
 public:
  explicit RawClient(int port);
  ~RawClient() { Leave(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  void Send(std::string_view bytes);
  // `lines`: header fields with their ends; with a length for a body that is not empty.
  void Post(std::string_view path, std::string_view body, std::string_view lines = "");
  void Get(std::string_view path, std::string_view lines = "");

  // The next reply; `is_head`: it has no body whatever its head says.
  RawReply Read(bool is_head = false);
  // Reads until this stands in what was not taken by Read; takes all up to its end.
  std::string ReadTo(std::string_view end);
  // All up to the end of the connection.
  std::string ReadAll();

  void EndWriting();  // reads on
  void Reset();       // as a client does that crashes
  void Leave();

 private:
  bool More();

  int socket_;
  std::string buffer_;
};

}  // namespace pagefuse::serve
