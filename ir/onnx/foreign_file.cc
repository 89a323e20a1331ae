// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ir/onnx/foreign_file.h"

#include <cctype>
#include <cstdint>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kExport = "export the model to ONNX";

struct Format {
  size_t offset;
  std::string_view magic, name, advice;
};

constexpr Format kFormats[] = {
    {0, "GGUF"sv, "a GGUF file of llama.cpp", kExport},
    {0, "lmgg"sv, "a GGML file of llama.cpp", kExport},
    {0, "tjgg"sv, "a GGML file of llama.cpp", kExport},
    {0, "fmgg"sv, "a GGML file of llama.cpp", kExport},
    {0, "PK\x03\x04"sv, "a zip archive, as PyTorch writes checkpoints", kExport},
    {0, "\x80\x02"sv, "a pickle, as PyTorch writes checkpoints", kExport},
    {0, "\x89HDF\r\n"sv, "an HDF5 file, as Keras writes models", kExport},
    {4, "TFL3"sv, "a TensorFlow Lite model", kExport},
    {4, "ORTM"sv, "a model in the ORT format of ONNX Runtime",
     "use the ONNX file it was made from"},
    {0, "\x93NUMPY"sv, "a NumPy array", "expected a model"},
    {0, "\x1F\x8B"sv, "a gzip archive", "unpack it first"},
    {0, "BZh"sv, "a bzip2 archive", "unpack it first"},
    {0, "\xFD\x37zXZ"sv, "an xz archive", "unpack it first"},
    {0, "\x28\xB5\x2F\xFD"sv, "a zstd archive", "unpack it first"},
    {257, "ustar"sv, "a tar archive", "unpack it first"},
    {0, "<?xml"sv, "an XML file, as OpenVINO writes models", kExport},
    {0, "\x7F\x45LF"sv, "a program or a library", "expected a model"},
};

absl::Status IsNoModel(std::string_view name, std::string_view advice) {
  return absl::InvalidArgumentError(StrCat("this is ", name, " and no ONNX model: ", advice));
}

// The length of a JSON header in eight bytes, little-endian, and the header: an object of tensors.
bool IsSafetensors(std::string_view bytes) {
  if (bytes.size() < 10) return false;
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<unsigned char>(bytes[i]);
  if (length < 2 || length > 1 << 30 || bytes[8] != '{') return false;
  const size_t next = bytes.find_first_not_of(" \t\r\n", 9);
  return next != bytes.npos && (bytes[next] == '"' || bytes[next] == '}');
}

// A page that a web site sent in place of a file.
bool IsWebPage(std::string_view bytes) {
  const size_t first = bytes.find_first_not_of(" \t\r\n");
  if (first == bytes.npos) return false;
  std::string begin(bytes.substr(first, 14));
  for (char& c : begin) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return begin.starts_with("<!doctype html") || begin.starts_with("<html");
}

bool IsJson(std::string_view bytes) {
  const size_t first = bytes.find_first_not_of(" \t\r\n");
  if (first == bytes.npos || (bytes[first] != '{' && bytes[first] != '[')) return false;
  const size_t next = bytes.find_first_not_of(" \t\r\n", first + 1);
  return next != bytes.npos && (bytes[next] == '"' || bytes[next] == '{' || bytes[next] == '}');
}

}  // namespace

absl::Status CheckIsNoPointer(std::string_view bytes) {
  if (!bytes.starts_with("version https://git-lfs.github.com/spec/")) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "this is a pointer of Git LFS in place of the file: get it with \"git lfs pull\"");
}

absl::Status CheckIsNoForeignFile(std::string_view bytes) {
  PF_RETURN_IF_ERROR(CheckIsNoPointer(bytes));
  for (const Format& format : kFormats) {
    const bool long_enough = bytes.size() >= format.offset + format.magic.size();
    if (long_enough && bytes.substr(format.offset).starts_with(format.magic)) {
      return IsNoModel(format.name, format.advice);
    }
  }
  if (IsSafetensors(bytes)) return IsNoModel("a safetensors file of weights", kExport);
  if (IsWebPage(bytes)) return IsNoModel("an HTML page", "download the file itself");
  if (IsJson(bytes)) return IsNoModel("a JSON file", "expected a model");
  return absl::OkStatus();
}

}  // namespace pagefuse
