// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/base/new_file.h"

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include <sys/stat.h>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

constexpr mode_t kMode = 0666;  // less what the user's mask takes away

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

// The file that a link leads to; the path itself where there is none.
std::string Followed(std::string path) {
  struct stat status;
  if (lstat(path.c_str(), &status) != 0 || !S_ISLNK(status.st_mode)) return path;
  char* target = realpath(path.c_str(), nullptr);
  if (target == nullptr) return path;
  path = target;
  std::free(target);
  return path;
}

// The number of the open file that /dev/stdout, /dev/fd/N and the like are another name of; -1 for
// other paths.
int DescriptorOf(std::string path) {
  constexpr int kMostLinks = 8;
  for (int i = 0; i < kMostLinks; ++i) {
    for (const char* folder : {"/proc/self/fd/", "/dev/fd/"}) {
      if (!path.starts_with(folder)) continue;
      const std::string number = path.substr(std::strlen(folder));
      const bool digits = !number.empty() && number.find_first_not_of("0123456789") == number.npos;
      return digits && number.size() < 9 ? std::stoi(number) : -1;
    }
    char target[PATH_MAX];
    const ssize_t length = readlink(path.c_str(), target, sizeof(target));
    if (length <= 0 || length == sizeof(target)) return -1;
    const std::string next(target, static_cast<size_t>(length));
    path = next.starts_with('/') ? next : FolderOf(path) + "/" + next;
  }
  return -1;
}

// By which a file without a name gets one.
std::string LinkOf(int fd) { return StrCat("/proc/self/fd/", fd); }

}  // namespace

bool IsSpecialFile(const std::string& path) {
  if (DescriptorOf(path) >= 0) return true;
  struct stat status;
  return stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
}

NewFile::NewFile(std::string path) : path_(std::move(path)), special_(IsSpecialFile(path_)) {}

NewFile::~NewFile() {
  if (fd_ >= 0) close(fd_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
  if (!old_.empty()) unlink(old_.c_str());
}

absl::Status NewFile::Failure(std::string_view what) const {
  return absl::InvalidArgumentError(
      StrCat("cannot ", what, " \"", path_, "\": ", std::strerror(errno)));
}

template <typename Make>
std::string NewFile::FreeName(const Make& make) const {
  // Left-overs of programs that were killed may have the first names.
  for (int attempt = 0; attempt < 100; ++attempt) {
    std::string name = StrCat(path_, ".tmp", getpid(), "-", attempt);
    if (make(name.c_str())) return name;
    if (errno != EEXIST) break;
  }
  return "";
}

absl::Status NewFile::OpenNamed() {
  temporary_ = FreeName([this](const char* name) {
    fd_ = open(name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, kMode);
    return fd_ >= 0;
  });
  return fd_ < 0 ? Failure("create") : absl::OkStatus();
}

absl::Status NewFile::Open() {
  if (special_) {
    // Behind what was written to an open file, not over it.
    const int open_file = DescriptorOf(path_);
    fd_ = open_file >= 0 ? fcntl(open_file, F_DUPFD_CLOEXEC, 0)
                         : open(path_.c_str(), O_WRONLY | O_CLOEXEC);
    return fd_ < 0 ? Failure("open") : absl::OkStatus();
  }
#if defined(O_TMPFILE)
  // A file without a name goes with the program, however that ends. Not every file system has them.
  fd_ = open(FolderOf(path_).c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, kMode);
  if (fd_ >= 0 && access(LinkOf(fd_).c_str(), F_OK) == 0) return absl::OkStatus();
  if (fd_ >= 0) close(std::exchange(fd_, -1));
#endif
  return OpenNamed();
}

absl::Status NewFile::Write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Failure("write");
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status NewFile::SeekTo(int64_t offset) {
  return lseek(fd_, offset, SEEK_SET) == offset ? absl::OkStatus() : Failure("write");
}

absl::Status NewFile::Finish() {
  if (!special_ && fsync(fd_) != 0) return Failure("write");
  if (!special_ && temporary_.empty()) PF_RETURN_IF_ERROR(Name());
  const int fd = std::exchange(fd_, -1);
  return close(fd) == 0 ? absl::OkStatus() : Failure("write");
}

absl::Status NewFile::Name() {
  temporary_ = FreeName([this](const char* name) {
    return linkat(AT_FDCWD, LinkOf(fd_).c_str(), AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0;
  });
  return temporary_.empty() ? Failure("create") : absl::OkStatus();
}

// Where a file system has no second names, what is there cannot be put back.
void NewFile::KeepOld() {
  if (special_) return;
  old_ = FreeName([this](const char* name) { return link(path_.c_str(), name) == 0; });
}

absl::Status NewFile::Move() {
  if (special_) return absl::OkStatus();
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) return Failure("write");
  temporary_.clear();
  moved_ = true;
  return absl::OkStatus();
}

void NewFile::TakeBack() {
  if (!moved_) return;
  if (old_.empty()) {
    unlink(path_.c_str());
  } else if (std::rename(old_.c_str(), path_.c_str()) == 0) {
    old_.clear();
  }
}

absl::Status NewFile::Commit(std::initializer_list<NewFile*> files) {
  // One file alone is moved or not.
  const bool several = files.size() > 1;
  for (NewFile* file : files) {
    if (several) file->KeepOld();
  }
  for (NewFile* file : files) {
    const absl::Status moved = file->Move();
    if (moved.ok()) continue;
    for (NewFile* other : files) other->TakeBack();
    return moved;
  }
  return absl::OkStatus();
}

absl::Status CheckNewFile(const std::string& path) {
  struct stat status;
  if (stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) {
    return absl::InvalidArgumentError(
        StrCat("cannot write \"", path, "\": ", std::strerror(EISDIR)));
  }
  // Opening a pipe would wait for its reader.
  if (IsSpecialFile(path)) return absl::OkStatus();
  return NewFile(Followed(path)).Open();
}

absl::Status WriteWholeFile(const std::string& path, std::string_view bytes) {
  NewFile file(IsSpecialFile(path) ? path : Followed(path));
  PF_RETURN_IF_ERROR(file.Open());
  PF_RETURN_IF_ERROR(file.Write(bytes));
  PF_RETURN_IF_ERROR(file.Finish());
  return NewFile::Commit({&file});
}

}  // namespace pagefuse
