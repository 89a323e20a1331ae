// SPDX-License-Identifier: Apache-2.0
// The table of all custom ops of the library, in the domains in which files call them.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "plugin/ort/op_row.h"

namespace pagefuse::ort {

// Made once for a host and what its sessions say; stays until the program ends, because sessions
// refer to it.
class OpTable {
 public:
  OpTable(const OpTable&) = delete;
  OpTable& operator=(const OpTable&) = delete;

  // Adds the ops to the options of a session.
  static absl::Status AddTo(Api* api, const char* host_version, SessionOptions* options);

 private:
  OpTable(Api* api, Settings settings, bool infers_shapes)
      : api_(api), settings_(std::move(settings)), infers_shapes_(infers_shapes) {}
  absl::Status Fill();
  absl::Status AddOp(const OpDef& op, const std::string& base);
  absl::Status AddMicrosoftOp(const OpDef& op);
  absl::Status AddRow(const OpDef& op, const TypeRow& types, const std::string& domain);

  Api* const api_;
  const Settings settings_;
  const bool infers_shapes_;
  std::deque<OpRow> rows_;
  std::map<std::string, CustomOpDomain*> domains_;
};

}  // namespace pagefuse::ort
