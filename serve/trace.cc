// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/serve/trace.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/graph/graph.h"

namespace pagefuse::serve {
namespace {

using TraceJson = nlohmann::ordered_json;

constexpr int kSteps = 1, kNodes = 2, kFirstRequest = 10;

Trace::Time After(Trace::Time start, double seconds) {
  return start + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                     std::chrono::duration<double>(seconds));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Trace>> Trace::Open(const std::string& path, int64_t most_bytes) {
  auto trace = std::unique_ptr<Trace>(new Trace(path, most_bytes));
  PF_RETURN_IF_ERROR(trace->Begin());
  return trace;
}

Trace::~Trace() { End(); }

absl::Status Trace::Begin() {
  End();
  const std::lock_guard lock(mutex_);
  file_ = std::fopen(path_.c_str(), "w");
  if (file_ == nullptr) {
    return absl::InvalidArgumentError(StrCat("\"", path_, "\": ", std::strerror(errno)));
  }
  bytes_ = 0;
  busy_.clear();
  origin_ = std::chrono::steady_clock::now();
  std::fputs("[\n", file_);
  NameTrack(kSteps, "steps");
  NameTrack(kNodes, "nodes");
  return absl::OkStatus();
}

void Trace::End() {
  const std::lock_guard lock(mutex_);
  if (file_ == nullptr) return;
  std::fputs("\n]\n", file_);
  std::fclose(file_);
  file_ = nullptr;
}

double Trace::Micros(Time time) const {
  return std::chrono::duration<double, std::micro>(time - origin_).count();
}

void Trace::Write(const TraceJson& event) {
  if (file_ == nullptr || bytes_ > most_bytes_) return;
  const std::string text = event.dump(-1, ' ', false, TraceJson::error_handler_t::replace);
  if (bytes_ > 0) std::fputs(",\n", file_);
  std::fputs(text.c_str(), file_);
  bytes_ += static_cast<int64_t>(text.size()) + 2;
}

void Trace::NameTrack(int track, const std::string& name) {
  Write({{"ph", "M"},
         {"name", "thread_name"},
         {"pid", 1},
         {"tid", track},
         {"args", {{"name", name}}}});
}

// What began before the trace did is no part of it.
void Trace::AddSpan(int track, const std::string& name, Time start, Time end,
                    const TraceJson& facts) {
  if (start < origin_) return;
  TraceJson event = {{"ph", "X"},    {"name", name},        {"pid", 1},
                     {"tid", track}, {"ts", Micros(start)}, {"dur", Micros(end) - Micros(start)}};
  if (!facts.empty()) event["args"] = facts;
  Write(event);
}

void Trace::AddStep(Time start, double seconds, const TraceJson& facts) {
  const std::lock_guard lock(mutex_);
  AddSpan(kSteps, "step", start, After(start, seconds), facts);
}

void Trace::AddPart(const char* name, Time start, double seconds) {
  const std::lock_guard lock(mutex_);
  AddSpan(kSteps, name, start, After(start, seconds), TraceJson::object());
}

void Trace::AddNodes(const Session& session, Time start) {
  const std::vector<NodeProfile> nodes = session.Profile();
  const std::lock_guard lock(mutex_);
  for (const NodeProfile& node : nodes) {
    const Time begin = After(start, node.start_us * 1e-6);
    AddSpan(kNodes, node.node->op_type(), begin, After(begin, node.duration_us * 1e-6),
            {{"kernel", node.kernel}});
  }
}

// One on which nothing is while this request is.
int Trace::FreeTrack(Time start, Time end) {
  for (size_t i = 0; i < busy_.size(); ++i) {
    if (busy_[i] > start) continue;
    busy_[i] = end;
    return kFirstRequest + static_cast<int>(i);
  }
  busy_.push_back(end);
  const int track = kFirstRequest + static_cast<int>(busy_.size()) - 1;
  NameTrack(track, StrCat("requests ", busy_.size()));
  return track;
}

void Trace::AddRequest(const RequestTimes& times) {
  const std::lock_guard lock(mutex_);
  if (file_ == nullptr || times.came < origin_) return;
  const int track = FreeTrack(times.came, times.ended);
  AddSpan(track, times.id, times.came, times.ended,
          {{"prompt_tokens", times.prompt_tokens},
           {"cached_tokens", times.cached_tokens},
           {"tokens", times.tokens},
           {"finish", times.finish}});
  AddSpan(track, "queued", times.came, times.started.value_or(times.ended), TraceJson::object());
  if (!times.started) return;
  AddSpan(track, "reading", *times.started, times.first_token.value_or(times.ended),
          TraceJson::object());
  if (!times.first_token) return;
  AddSpan(track, "writing", *times.first_token, times.ended, TraceJson::object());
}

}  // namespace pagefuse::serve
