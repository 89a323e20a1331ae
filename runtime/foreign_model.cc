// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/foreign_model.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <vector>

#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

namespace fs = std::filesystem;

enum class Kind { kUnknown, kPointer, kWebPage, kSafetensors, kGguf, kPyTorch, kOrtFormat };

std::string FirstBytes(const fs::path& path) {
  std::string bytes(128, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return bytes;
}

// The length of a JSON header, and the header.
bool IsSafetensors(const fs::path& path, std::string_view bytes) {
  uint64_t header = 0;
  if (bytes.size() < sizeof(header) + 2 || bytes[sizeof(header)] != '{') return false;
  std::memcpy(&header, bytes.data(), sizeof(header));
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  return !error && header >= 2 && header <= size - sizeof(header);
}

// A ZIP archive whose first entry is a pickle, or, of old releases, a pickled magic number.
bool IsPyTorch(std::string_view bytes) {
  if (bytes.starts_with("PK\x03\x04")) return bytes.find(".pkl") != std::string_view::npos;
  return bytes.starts_with("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46");
}

bool IsWebPage(std::string_view bytes) {
  std::string text(bytes.substr(0, 16));
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text.starts_with("<!doctype html") || text.starts_with("<html");
}

Kind KindOf(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return Kind::kUnknown;
  const std::string bytes = FirstBytes(path);
  const auto at = [&bytes](size_t offset, std::string_view text) {
    return bytes.compare(offset < bytes.size() ? offset : bytes.size(), text.size(), text) == 0;
  };
  if (at(0, "version https://git-lfs.github.com/spec/")) return Kind::kPointer;
  if (at(0, "GGUF")) return Kind::kGguf;
  if (at(4, "ORTM")) return Kind::kOrtFormat;
  if (IsWebPage(bytes)) return Kind::kWebPage;
  if (IsPyTorch(bytes)) return Kind::kPyTorch;
  return IsSafetensors(path, bytes) ? Kind::kSafetensors : Kind::kUnknown;
}

// The exporter takes a checkpoint's folder, not a file of weights in it.
std::string Export(const fs::path& folder) {
  std::error_code error;
  fs::path name = fs::absolute(folder, error).lexically_normal();
  if (!name.has_filename()) name = name.parent_path();
  return StrCat("optimum-cli export onnx --model \"", folder.string(), "\" \"",
                name.filename().string(), "_onnx\" makes one");
}

constexpr const char* kExportOriginal =
    "optimum-cli export onnx --model NAME OUT makes one of the checkpoint that it was made from";

}  // namespace

std::string WhatFileIsInstead(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  const fs::path folder = parent.empty() ? fs::path(".") : parent;
  switch (KindOf(path)) {
    case Kind::kPointer:
      return StrCat("is a Git-LFS pointer, not the file itself: git -C \"", folder.string(),
                    "\" lfs pull fetches it");
    case Kind::kWebPage:
      return "is a web page: what was downloaded is not the file itself";
    case Kind::kSafetensors:
      return StrCat("is a safetensors file, weights without a graph: ", Export(folder));
    case Kind::kGguf:
      return StrCat("is a GGUF file, weights without a graph: ", kExportOriginal);
    case Kind::kPyTorch:
      return StrCat("is a PyTorch file, weights without a graph: ", Export(folder));
    case Kind::kOrtFormat:
      return "is in ONNX Runtime's own format (.ort): use the .onnx file that it was made from";
    case Kind::kUnknown:
      return "";
  }
  return "";
}

std::string WhatFolderHasInstead(const std::string& path) {
  std::vector<fs::path> files;
  std::error_code error;
  fs::directory_iterator entry(path, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    files.push_back(entry->path());
  }
  if (error) return "";
  if (files.empty()) return "is empty";
  std::ranges::sort(files);
  for (const fs::path& file : files) {
    const Kind kind = KindOf(file);
    const std::string extension = file.extension().string();
    const bool is_weights = extension == ".safetensors" || extension == ".gguf" ||
                            extension == ".bin" || extension == ".pt" || extension == ".pth";
    // A pointer stands for what its name says.
    const bool weights = kind == Kind::kSafetensors || kind == Kind::kGguf ||
                         kind == Kind::kPyTorch || (kind == Kind::kPointer && is_weights);
    if (!weights) continue;
    const bool gguf = kind == Kind::kGguf || extension == ".gguf";
    return StrCat("has weights without a graph (", file.filename().string(),
                  "): ", gguf ? std::string(kExportOriginal) : Export(path));
  }
  return "";
}

}  // namespace pagefuse
