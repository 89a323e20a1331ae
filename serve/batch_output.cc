// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/serve/batch_output.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include <sys/file.h>
#include <sys/stat.h>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/serve/api.h"

namespace pagefuse::serve {
namespace {

// By which a line is known that has no id of its own, in later runs too.
constexpr std::string_view kDuplicate = "duplicate_custom_id";
// How each line begins.
constexpr std::string_view kLineStart = "{\"id\":\"batch_req_";

std::string LineHead(const BatchLine& line) {
  const Json id = line.custom_id ? Json(*line.custom_id) : Json();
  return StrCat("{\"id\":\"", NewId("batch_req_"), "\",\"custom_id\":", Dump(id));
}

const Json* MemberOf(const Json& json, const char* name) {
  if (!json.is_object()) return nullptr;
  const auto found = json.find(name);
  return found == json.end() || found->is_null() ? nullptr : &*found;
}

void AddText(const Json* json, absl::btree_set<std::string>& texts) {
  if (json != nullptr && json->is_string()) texts.insert(json->get<std::string>());
}

}  // namespace

std::string BatchAnswerLine(const BatchLine& line, int status, const std::string& request_id,
                            std::string_view body) {
  return StrCat(LineHead(line), ",\"response\":{\"status_code\":", status,
                ",\"request_id\":", Dump(request_id), ",\"body\":", body, "},\"error\":null}\n");
}

std::string BatchErrorLine(const BatchLine& line) {
  const Json error = {{"code", line.error->code},
                      {"message", line.error->message},
                      {"param", Json()},
                      {"line", line.number}};
  return StrCat(LineHead(line), ",\"response\":null,\"error\":", Dump(error), "}\n");
}

absl::StatusOr<std::unique_ptr<BatchOutput>> BatchOutput::Open(const std::string& path) {
  constexpr mode_t kMode = 0666;
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, kMode);
  std::unique_ptr<BatchOutput> output(new BatchOutput(path, file));
  if (file < 0) return output->Failure("expected a file that can be written");
  struct stat info = {};
  if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        StrCat("\"", path, "\": expected a file, of which a later run keeps what is there"));
  }
  if (flock(file, LOCK_EX | LOCK_NB) != 0) {
    return absl::InvalidArgumentError(
        StrCat("\"", path, "\": expected a file of one run alone, got one that another writes"));
  }
  PF_RETURN_IF_ERROR(output->Keep());
  return output;
}

BatchOutput::~BatchOutput() {
  if (file_ >= 0) close(file_);
}

absl::Status BatchOutput::Failure(std::string_view what) const {
  return absl::InvalidArgumentError(StrCat("\"", path_, "\": ", what, ": ", std::strerror(errno)));
}

absl::Status BatchOutput::Wrong(int64_t line, std::string_view what) const {
  return absl::InvalidArgumentError(StrCat("\"", path_, "\", line ", line, ": ", what));
}

absl::Status BatchOutput::Keep() {
  constexpr size_t kPiece = size_t{1} << 20;
  std::string text, piece(kPiece, '\0');
  off_t whole = 0;  // bytes of whole lines
  ssize_t got = 0;
  for (off_t at = 0; (got = pread(file_, piece.data(), kPiece, at)) > 0; at += got) {
    text.append(piece, 0, static_cast<size_t>(got));
    size_t begin = 0;
    for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
      PF_RETURN_IF_ERROR(KeepLine(std::string_view(text).substr(begin, end - begin)));
    }
    text.erase(0, begin);
    whole += static_cast<off_t>(begin);
  }
  if (got < 0) return Failure("cannot be read");
  if (text.empty()) return absl::OkStatus();
  // Nothing is lost of a file that somebody named by mistake.
  const std::string_view start = std::string_view(text).substr(0, kLineStart.size());
  if (!kLineStart.starts_with(start)) {
    return Wrong(kept_ + 1, "expected an answer of a batch, got something else");
  }
  return ftruncate(file_, whole) == 0 ? absl::OkStatus() : Failure("cannot be cut");
}

absl::Status BatchOutput::KeepLine(std::string_view text) {
  ++kept_;
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!text.starts_with(kLineStart) || !json.is_object()) {
    return Wrong(kept_, "expected an answer of a batch, got something else");
  }
  const Json* const id = MemberOf(json, "custom_id");
  const Json* const error = MemberOf(json, "error");
  const Json* const number = error == nullptr ? nullptr : MemberOf(*error, "line");
  const Json* const code = error == nullptr ? nullptr : MemberOf(*error, "code");
  const bool by_number = id == nullptr || (code != nullptr && *code == std::string(kDuplicate));
  bool is_new = false;
  if (by_number && number != nullptr && number->is_number_integer()) {
    is_new = numbers_.insert(number->get<int64_t>()).second;
  } else if (!by_number && id->is_string()) {
    is_new = ids_.insert(id->get<std::string>()).second;
  } else {
    return Wrong(kept_, "expected a custom_id or the line of an error, got none");
  }
  if (!is_new) return Wrong(kept_, "expected an answer that is not there yet, got it twice");
  const Json* const response = MemberOf(json, "response");
  constexpr int kGood = 200;
  const Json* const status = response == nullptr ? nullptr : MemberOf(*response, "status_code");
  if (status == nullptr || *status != kGood) ++kept_failures_;
  if (const Json* body = response == nullptr ? nullptr : MemberOf(*response, "body")) {
    AddText(MemberOf(*body, "model"), models_);
    AddText(MemberOf(*body, "system_fingerprint"), fingerprints_);
  }
  return absl::OkStatus();
}

bool BatchOutput::Has(const BatchLine& line) const {
  if (line.custom_id && !line.repeats_id) return ids_.contains(*line.custom_id);
  return numbers_.contains(line.number);
}

absl::Status BatchOutput::CheckInput(const BatchInput& input) const {
  constexpr std::string_view kAdvice = "; what other requests were given belongs into another file";
  for (const std::string& id : ids_) {
    if (input.ids().contains(id)) continue;
    return absl::InvalidArgumentError(
        StrCat("\"", path_, "\": expected answers of requests of the input, got custom_id \"", id,
               "\", which it has not", kAdvice));
  }
  for (const int64_t number : numbers_) {
    if (number >= 1 && number <= input.lines()) continue;
    return absl::InvalidArgumentError(StrCat("\"", path_, "\": expected answers of the ",
                                             input.lines(), " lines of the input, got one of line ",
                                             number, kAdvice));
  }
  return absl::OkStatus();
}

absl::Status BatchOutput::CheckModel(const ServedModel& model) const {
  const auto check = [&](const absl::btree_set<std::string>& found, const std::string& expected,
                         std::string_view what) -> absl::Status {
    for (const std::string& text : found) {
      if (text == expected) continue;
      return absl::InvalidArgumentError(StrCat(
          "\"", path_, "\": expected answers of ", what, " \"", expected, "\", got one of \"", text,
          "\"; another model, cache or build answers into another file"));
    }
    return absl::OkStatus();
  };
  PF_RETURN_IF_ERROR(check(models_, model.name, "model"));
  return check(fingerprints_, model.fingerprint, "fingerprint");
}

absl::Status BatchOutput::Write(std::string_view line) {
  if (is_broken_) {
    return absl::InvalidArgumentError(StrCat("\"", path_, "\": cannot be written any more"));
  }
  while (!line.empty()) {
    const ssize_t written = write(file_, line.data(), line.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      is_broken_ = true;
      return Failure("cannot be written");
    }
    line.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status BatchOutput::Sync() {
  return fsync(file_) == 0 ? absl::OkStatus() : Failure("cannot be written");
}

}  // namespace pagefuse::serve
