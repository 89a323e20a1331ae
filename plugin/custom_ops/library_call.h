// SPDX-License-Identifier: Apache-2.0
// Calls of a library's functions: what it throws, what it answers and what it misses here become
// one status.
#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include "absl/status/status.h"

#include "pagefuse/plugin/custom_ops/objects.h"

namespace pagefuse::ort {

// "function 131, CreateAllocator, of ONNX Runtime's C API is not there for custom ops"
std::string MissingFunction(int place);
// Remember what the library asked for in vain, for the call that this thread is in.
void NoteMissing(const std::string& sentence);
void NoteRefusedVersion(uint32_t version);

// While one lives, what this thread notes comes to it.
class MissingNotes {
 public:
  MissingNotes();
  ~MissingNotes();
  MissingNotes(const MissingNotes&) = delete;
  MissingNotes& operator=(const MissingNotes&) = delete;

  // The status of a call that ended with `status`. Whatever a library says that lacked a function,
  // it did not get what it needs; one that was refused a version may have asked for another.
  absl::Status Judge(const absl::Status& status) const;

 private:
  friend void NoteMissing(const std::string& sentence);
  friend void NoteRefusedVersion(uint32_t version);
  MissingNotes* const before_;
  std::string function_;
  uint32_t version_ = 0;
};

// OK for null; takes what it gets. Not implemented becomes Unimplemented, a bad argument
// InvalidArgument, all else Aborted: it is not our fault.
absl::Status FromAnswer(Status* status);

// Runs `call`, which answers a status of the library's. Nothing is thrown past it.
template <typename Call>
absl::Status CallLibrary(const Call& call) {
  const MissingNotes notes;
  absl::Status status;
  try {
    status = FromAnswer(call());
  } catch (const std::exception& error) {
    status = absl::AbortedError(error.what());
  } catch (...) {
    status = absl::AbortedError("an exception of unknown type");
  }
  return notes.Judge(status);
}

}  // namespace pagefuse::ort
