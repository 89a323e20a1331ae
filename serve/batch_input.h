// SPDX-License-Identifier: Apache-2.0
// Reads the lines of a batch, one request each, as OpenAI's Batch API takes them.
//
// Source: OpenAI's API reference, "Batch", "The request input object".
#pragma once

#include <cstdint>
#include <fstream>
#include <memory>
#include <optional>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/serve/http.h"
#include "pagefuse/serve/routes.h"

namespace pagefuse::serve {

// Lines of which the number modulo `count` is `index`; the first line has 0.
struct BatchShard {
  int64_t index = 0;
  int64_t count = 1;
};

// Why a line is no request: a name for programs, and what was expected and found.
struct BatchError {
  std::string code, message;
};

struct BatchLine {
  int64_t number = 0;  // 1 for the first line of the file
  std::optional<std::string> custom_id = {};
  bool repeats_id = false;  // an earlier line has it
  std::optional<BatchError> error = {};
  // Where there is no error:
  const Route* route = nullptr;
  HttpRequest request = {};
};

// Holds one line at a time, and the ids of those before it.
class BatchInput {
 public:
  // InvalidArgument naming a file that cannot be read twice, as a pipe cannot.
  static absl::StatusOr<BatchInput> Open(const std::string& path, const BatchShard& shard);

  // Lines of the shard one after the other; those without anything are passed over. Null at the end.
  absl::StatusOr<std::optional<BatchLine>> Next();

  // Of all lines up to here, those of other shards too.
  const absl::flat_hash_set<std::string>& ids() const { return ids_; }
  int64_t lines() const { return number_; }

 private:
  BatchInput(std::string path, const BatchShard& shard, std::ifstream file)
      : path_(std::move(path)), shard_(shard), file_(std::move(file)) {}
  enum class Got { kLine, kLongLine, kEnd };
  Got ReadLine(std::string& text);
  BatchLine Read(const std::string& text);

  std::string path_;
  BatchShard shard_;
  std::ifstream file_;
  int64_t number_ = 0;
  absl::flat_hash_set<std::string> ids_;
};

}  // namespace pagefuse::serve
