// SPDX-License-Identifier: Apache-2.0
// Writes files so that each is there whole or not at all: beside its place, and moved there at the end. Until then an older file of that
// name is what readers find; of a file that could not be finished, for whatever reason, nothing is left.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace pagefuse {

class NewFile {
 public:
  // A link of that name is replaced, not what it leads to.
  explicit NewFile(std::string path);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  // All of these: InvalidArgument with the path and the system's reason.
  absl::Status Open();
  absl::Status Write(std::string_view bytes);
  // Moves on to `offset`; what lies between is zero.
  absl::Status SeekTo(int64_t offset);
  // For what writes by itself, between Open and Finish.
  int descriptor() const { return fd_; }
  // Writes to the disk, so that Commit cannot leave half a file.
  absl::Status Finish();

  // The files, each finished, take their places, or none of them does.
  static absl::Status Commit(std::initializer_list<NewFile*> files);

 private:
  absl::Status OpenNamed();
  absl::Status Name();
  absl::Status Move();
  void KeepOld();
  void TakeBack();
  absl::Status Failure(std::string_view what) const;
  // A name beside the place that `make` can take; empty if there is none.
  template <typename Make>
  std::string FreeName(const Make& make) const;

  std::string path_;
  std::string temporary_;  // its name until it is moved, empty while it has none
  std::string old_;        // another name of the file whose place it takes
  int fd_ = -1;
  bool special_ = false;  // a device or a pipe, which is written where it is
  bool moved_ = false;
};

// Devices, pipes and names of open files, as /dev/stdout is one, are written where they are: a file
// that took their place would end them.
bool IsSpecialFile(const std::string& path);

// What Open of such a file would say, or that a folder has its name, before there is anything to
// write; nothing is left of the try.
absl::Status CheckNewFile(const std::string& path);

// Replaces the file, or the one that a link of that name leads to, by `bytes`.
absl::Status WriteWholeFile(const std::string& path, std::string_view bytes);

}  // namespace pagefuse
