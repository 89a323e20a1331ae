// SPDX-License-Identifier: Apache-2.0
// Answers the requests of a file, as many at once as fill the engine, by the very code that serves them over
// the network.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/container/btree_set.h"
#include "absl/status/statusor.h"

#include "pagefuse/serve/batch_input.h"
#include "pagefuse/serve/batch_output.h"
#include "pagefuse/serve/service.h"

namespace pagefuse::serve {

struct BatchOptions {
  int64_t in_flight = 128;      // requests at one time, which is all that memory holds of them
  int64_t to_run = 0;           // lines, as far as that is known; for the progress
  std::function<bool()> stops;  // asked now and then; may be null
};

struct BatchResult {
  int64_t answered = 0,
          failed = 0;  // lines written; failed: no request, or another status than 200
  bool stopped = false;
  absl::btree_set<std::string> ignored = {};  // members that nobody read
};

// Runs the lines of `input` that `output` has not, and writes each when it is done. One that stops ends what
// runs, which a later run answers. Fails where input or output does.
absl::StatusOr<BatchResult> RunBatch(Service& service, BatchInput& input, BatchOutput& output,
                                     const BatchOptions& options);

}  // namespace pagefuse::serve
