// SPDX-License-Identifier: Apache-2.0
// Writes the answers of a batch, a line each, and knows which are there already.
//
// Source: OpenAI's API reference, "Batch", "The request output object".
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/serve/batch_input.h"
#include "pagefuse/serve/served_model.h"

namespace pagefuse::serve {

// A line of the answer that came with `status`, with its end of line; `body` is JSON on one line.
std::string BatchAnswerLine(const BatchLine& line, int status, const std::string& request_id,
                            std::string_view body);
// Of a line that is no request.
std::string BatchErrorLine(const BatchLine& line);

class BatchOutput {
 public:
  // A file that is there keeps its whole lines, and loses half a line at its end, which a killed run
  // leaves. InvalidArgument for a file in which something else stands, and for one that another process
  // writes.
  static absl::StatusOr<std::unique_ptr<BatchOutput>> Open(const std::string& path);
  ~BatchOutput();
  BatchOutput(const BatchOutput&) = delete;
  BatchOutput& operator=(const BatchOutput&) = delete;

  // Whether the line was answered by an earlier run.
  bool Has(const BatchLine& line) const;
  // InvalidArgument if an earlier run answered what is not in the input, which was read to its end.
  absl::Status CheckInput(const BatchInput& input) const;
  // InvalidArgument if another model wrote what is there, or the same one in another mode.
  absl::Status CheckModel(const ServedModel& model) const;

  // A whole line, at once. After a failure nothing is written behind what may be half a line.
  absl::Status Write(std::string_view line);
  // What was written is on the disk.
  absl::Status Sync();

  int64_t kept() const { return kept_; }
  int64_t kept_failures() const { return kept_failures_; }

 private:
  BatchOutput(std::string path, int file) : path_(std::move(path)), file_(file) {}
  absl::Status Keep();
  absl::Status KeepLine(std::string_view text);
  absl::Status Wrong(int64_t line, std::string_view what) const;
  absl::Status Failure(std::string_view what) const;

  std::string path_;
  int file_;
  bool is_broken_ = false;
  int64_t kept_ = 0, kept_failures_ = 0;
  absl::flat_hash_set<std::string> ids_;
  absl::flat_hash_set<int64_t> numbers_;  // of lines that have no id of their own
  absl::btree_set<std::string> models_, fingerprints_;
};

}  // namespace pagefuse::serve
