// SPDX-License-Identifier: Apache-2.0
// The server's log: one line an event on the error stream, JSON or, on a terminal, text. Nothing of a prompt or an
// answer stands in it.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "nlohmann/json.hpp"

namespace pagefuse::serve {

// Thread-safe.
class Log {
 public:
  enum class Form { kJson, kText, kNone };
  // `write` gets whole lines; null: the error stream.
  explicit Log(Form form, std::function<void(std::string_view)> write = nullptr);

  // `event`: "start", "request", "refused", ...; `facts`: an object.
  void Add(std::string_view event, const nlohmann::ordered_json& facts);

 private:
  Form form_;
  std::function<void(std::string_view)> write_;
  std::mutex mutex_;
};

}  // namespace pagefuse::serve
