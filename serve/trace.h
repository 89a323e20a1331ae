// SPDX-License-Identifier: Apache-2.0
// What a server did, in time: steps, the nodes that they ran, and a track for each request, as Chrome's tracing
// and Perfetto show them.
//
// Source: Chrome's Trace Event Format, JSON array of complete events ("ph": "X"), times in microseconds.
#pragma once

#include <chrono>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

#include "pagefuse/runtime/session.h"

namespace pagefuse::serve {

// When what of a request happened; unset: it did not.
struct RequestTimes {
  using Time = std::chrono::steady_clock::time_point;
  std::string id;
  Time came, ended;
  std::optional<Time> started, first_token;
  int64_t prompt_tokens = 0, cached_tokens = 0, tokens = 0;
  std::string finish;
};

// Thread-safe. The file is JSON at every time but for its last bracket, which End writes.
class Trace {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr int64_t kMostBytes = int64_t{256} << 20;  // nothing more is written then

  // InvalidArgument with the system's reason.
  static absl::StatusOr<std::unique_ptr<Trace>> Open(const std::string& path,
                                                     int64_t most_bytes = kMostBytes);
  ~Trace();

  // Begins the file anew.
  absl::Status Begin();
  void End();

  // A span of the track of steps, and spans of its parts one behind the other.
  void AddStep(Time start, double seconds, const nlohmann::ordered_json& facts);
  void AddPart(const char* name, Time start, double seconds);
  // The nodes of the session's last run, which began then (SessionOptions::profile).
  void AddNodes(const Session& session, Time start);
  void AddRequest(const RequestTimes& times);

 private:
  Trace(std::string path, int64_t most_bytes) : path_(std::move(path)), most_bytes_(most_bytes) {}
  void Write(const nlohmann::ordered_json& event);
  void AddSpan(int track, const std::string& name, Time start, Time end,
               const nlohmann::ordered_json& facts);
  void NameTrack(int track, const std::string& name);
  int FreeTrack(Time start, Time end);
  double Micros(Time time) const;

  const std::string path_;
  const int64_t most_bytes_;
  std::mutex mutex_;
  std::FILE* file_ = nullptr;
  int64_t bytes_ = 0;
  Time origin_;
  std::vector<Time> busy_;  // until when each track of requests is
};

}  // namespace pagefuse::serve
