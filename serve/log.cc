// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/serve/log.h"

#include <chrono>
#include <cstdio>
#include <ctime>
#include <utility>

#include "absl/strings/str_format.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse::serve {
namespace {

using LogJson = nlohmann::ordered_json;

// "2026-01-31T09:30:00.123Z"
std::string Now() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto part = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch());
  std::tm utc = {};
  gmtime_r(&seconds, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
  constexpr int64_t kThousand = 1000;
  return absl::StrFormat("%s.%03dZ", text, part.count() % kThousand);
}

std::string Dump(const LogJson& json) {
  return json.dump(-1, ' ', false, LogJson::error_handler_t::replace);
}

std::string TextLine(std::string_view event, const LogJson& facts) {
  std::string line(event);
  for (const auto& [name, value] : facts.items()) {
    StrAppend(&line, "  ", name, " ",
              value.is_string() ? value.get_ref<const std::string&>() : Dump(value));
  }
  return line;
}

}  // namespace

Log::Log(Form form, std::function<void(std::string_view)> write)
    : form_(form), write_(std::move(write)) {
  if (write_) return;
  write_ = [](std::string_view line) { std::fwrite(line.data(), 1, line.size(), stderr); };
}

void Log::Add(std::string_view event, const nlohmann::ordered_json& facts) {
  if (form_ == Form::kNone) return;
  std::string line;
  if (form_ == Form::kText) {
    line = TextLine(event, facts);
  } else {
    LogJson json = {{"time", Now()}, {"event", event}};
    json.update(facts);
    line = Dump(json);
  }
  line += '\n';
  const std::lock_guard lock(mutex_);
  write_(line);
}

}  // namespace pagefuse::serve
