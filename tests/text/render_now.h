// SPDX-License-Identifier: Apache-2.0
// The variables of a model and the time that render_templates.py renders with.
#pragma once

#include <ctime>

#include "nlohmann/json.hpp"

namespace pagefuse {

inline nlohmann::ordered_json OwnVariables() {
  return {{"bos_token", "<bos>"},
          {"eos_token", "<eos>"},
          {"pad_token", "<pad>"},
          {"unk_token", "<unk>"}};
}

// 2 January 2026, 3:04:05 local time.
inline std::time_t RenderTime() {
  std::tm time{};
  time.tm_year = 126;
  time.tm_mday = 2;
  time.tm_hour = 3;
  time.tm_min = 4;
  time.tm_sec = 5;
  time.tm_isdst = -1;
  return std::mktime(&time);
}

}  // namespace pagefuse
