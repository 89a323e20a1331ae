// SPDX-License-Identifier: Apache-2.0
#include "tools/run/numpy_file.h"

#include <array>
#include <cstring>
#include <memory>
#include <optional>

#include "nlohmann/json.hpp"
#include <minizip/unzip.h>
#include <minizip/zip.h>

#include "pagefuse/base/json_depth.h"
#include "pagefuse/base/new_file.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/status_place.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse::tools {
namespace {

// A .npy file is: these bytes, the version (2 bytes), the length of the header (2 bytes in version 1,
// 4 in later ones, little-endian), the header as a Python dict, the elements.
constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kLengthAt = 8;
constexpr size_t kAlignment = 64;  // of the first element
constexpr size_t kLongestHeader = 1 << 20;

struct NumpyType {
  std::string_view descr;  // without the order of bytes
  DataType type;
};
constexpr std::array<NumpyType, 14> kTypes = {{{"b1", DataType::kBool},
                                               {"i1", DataType::kInt8},
                                               {"u1", DataType::kUint8},
                                               {"i2", DataType::kInt16},
                                               {"u2", DataType::kUint16},
                                               {"i4", DataType::kInt32},
                                               {"u4", DataType::kUint32},
                                               {"i8", DataType::kInt64},
                                               {"u8", DataType::kUint64},
                                               {"f2", DataType::kFloat16},
                                               {"f4", DataType::kFloat},
                                               {"f8", DataType::kDouble},
                                               {"c8", DataType::kComplex64},
                                               {"c16", DataType::kComplex128}}};

absl::StatusOr<DataType> TypeOf(std::string_view descr) {
  if (descr.starts_with('>')) {
    return absl::UnimplementedError(StrCat("expected little-endian elements, got \"", descr, "\""));
  }
  for (const NumpyType& known : kTypes) {
    if (!descr.empty() && descr.substr(1) == known.descr) return known.type;
  }
  return absl::UnimplementedError(
      StrCat("expected elements of numbers or booleans, got \"", descr, "\""));
}

// The dict as JSON: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }.
std::string DictAsJson(std::string_view dict) {
  std::string json;
  for (size_t i = 0; i < dict.size(); ++i) {
    const char c = dict[i];
    if (c == ')' || c == '}') {
      while (json.ends_with(' ') || json.ends_with(',')) json.pop_back();
    }
    if (dict.substr(i).starts_with("True") || dict.substr(i).starts_with("False")) {
      json += c == 'T' ? 't' : 'f';
    } else {
      json += c == '\'' ? '"' : c == '(' ? '[' : c == ')' ? ']' : c;
    }
  }
  return json;
}

struct Header {
  std::string descr;
  bool fortran = false;
  std::vector<int64_t> dims;
  size_t size = 0;  // where the elements begin
};

std::optional<Header> ReadDict(std::string_view dict) {
  const std::string text = DictAsJson(dict);
  if (IsNestedTooDeeply(text)) return std::nullopt;
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("descr") || !json["descr"].is_string() ||
      !json.contains("fortran_order") || !json["fortran_order"].is_boolean() ||
      !json.contains("shape") || !json["shape"].is_array()) {
    return std::nullopt;
  }
  Header header{.descr = json["descr"], .fortran = json["fortran_order"], .dims = {}};
  for (const auto& dim : json["shape"]) {
    if (!dim.is_number_unsigned()) return std::nullopt;
    header.dims.push_back(dim.get<int64_t>());
  }
  return header;
}

absl::StatusOr<Header> ReadHeader(std::string_view bytes) {
  if (!IsNpy(bytes)) return absl::InvalidArgumentError("expected an array of NumPy");
  const size_t width = bytes[kMagic.size()] == 1 ? 2 : 4;
  size_t length = 0;
  for (size_t i = 0; i < width && kLengthAt + i < bytes.size(); ++i) {
    length |= static_cast<size_t>(static_cast<unsigned char>(bytes[kLengthAt + i])) << (8 * i);
  }
  const size_t begin = kLengthAt + width;
  if (length > kLongestHeader || begin + length > bytes.size()) {
    return absl::InvalidArgumentError("the header of the array is cut off");
  }
  std::optional<Header> header = ReadDict(bytes.substr(begin, length));
  if (!header) {
    return absl::InvalidArgumentError(
        "the header of the array: expected a plain type, an order and a shape");
  }
  header->size = begin + length;
  return *std::move(header);
}

// The first index varies fastest in `from`, and the last one in `to`.
void FromFortran(const char* from, const std::vector<int64_t>& dims, int64_t width, char* to) {
  std::vector<int64_t> index(dims.size()), strides(dims.size());
  int64_t count = 1;
  for (size_t i = 0; i < dims.size(); ++i) {
    strides[i] = count;
    count *= dims[i];
  }
  int64_t place = 0;
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(to + i * width, from + place * width, width);
    for (size_t axis = dims.size(); axis-- > 0;) {
      place += strides[axis];
      if (++index[axis] < dims[axis]) break;
      place -= strides[axis] * dims[axis];
      index[axis] = 0;
    }
  }
}

using ZipReader = std::unique_ptr<void, decltype(&unzClose)>;

// What a zip file declares of an entry is held against what its bytes can hold: deflate makes 1,032
// bytes of one at most.
absl::Status CheckEntry(const unz_file_info64& info) {
  constexpr uint64_t kMostOfOne = 1032, kSlack = 4096;
  constexpr uint64_t kEncrypted = 1;
  if ((info.flag & kEncrypted) != 0) return absl::UnimplementedError("is encrypted");
  if (info.uncompressed_size / kMostOfOne <= info.compressed_size + kSlack) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("declares more bytes than it can hold");
}

absl::StatusOr<std::string> ReadEntry(unzFile zip, uint64_t size) {
  const auto broken = [] { return absl::InvalidArgumentError("is damaged"); };
  if (unzOpenCurrentFile(zip) != UNZ_OK) return broken();
  std::string bytes(size, '\0');
  constexpr uint64_t kPiece = 1 << 30;
  bool whole = true;
  for (uint64_t at = 0; at < size && whole;) {
    const int got = unzReadCurrentFile(zip, bytes.data() + at,
                                       static_cast<unsigned>(std::min(kPiece, size - at)));
    whole = got > 0;
    at += whole ? got : 0;
  }
  const bool checked = unzCloseCurrentFile(zip) == UNZ_OK;
  if (!whole || !checked) return broken();
  return bytes;
}

absl::StatusOr<Tensor> ReadArray(unzFile zip, std::string& name) {
  unz_file_info64 info = {};
  char text[1024] = {};
  if (unzGetCurrentFileInfo64(zip, &info, text, sizeof(text) - 1, nullptr, 0, nullptr, 0) !=
      UNZ_OK) {
    return absl::InvalidArgumentError("the list of its arrays is damaged");
  }
  name = text;
  PF_RETURN_IF_ERROR(CheckEntry(info));
  PF_ASSIGN_OR_RETURN(const std::string bytes, ReadEntry(zip, info.uncompressed_size));
  PF_ASSIGN_OR_RETURN(Tensor tensor, ParseNpy(bytes));
  if (name.ends_with(".npy")) name.resize(name.size() - 4);
  return tensor;
}

absl::Status WriteEntry(zipFile zip, const std::string& name, const std::string& bytes) {
  constexpr size_t kPiece = 1 << 30;
  const zip_fileinfo info = {};
  bool good = zipOpenNewFileInZip64(zip, (name + ".npy").c_str(), &info, nullptr, 0, nullptr, 0,
                                    nullptr, /*method=*/0, /*level=*/0, /*zip64=*/1) == ZIP_OK;
  for (size_t at = 0; good && at < bytes.size(); at += kPiece) {
    const auto size = static_cast<unsigned>(std::min(kPiece, bytes.size() - at));
    good = zipWriteInFileInZip(zip, bytes.data() + at, size) == ZIP_OK;
  }
  good = zipCloseFileInZip(zip) == ZIP_OK && good;
  return good ? absl::OkStatus() : absl::InvalidArgumentError("cannot be written");
}

absl::Status WriteEntries(const std::vector<NamedTensor>& tensors, int descriptor) {
  // The library opens files by name alone.
  const zipFile zip = zipOpen64(StrCat("/dev/fd/", descriptor).c_str(), APPEND_STATUS_CREATE);
  if (zip == nullptr) return absl::InvalidArgumentError("cannot be written");
  absl::Status status;
  for (const auto& [name, tensor] : tensors) {
    const absl::StatusOr<std::string> bytes = NpyBytes(tensor);
    status = bytes.ok() ? WriteEntry(zip, name, *bytes) : bytes.status();
    if (!status.ok()) break;
  }
  const bool closed = zipClose(zip, nullptr) == ZIP_OK;
  if (status.ok() && !closed) return absl::InvalidArgumentError("cannot be written");
  return status;
}

const NumpyType* FindType(DataType type) {
  for (const NumpyType& known : kTypes) {
    if (known.type == type) return &known;
  }
  return nullptr;
}

}  // namespace

bool IsNpy(std::string_view bytes) { return bytes.size() > kLengthAt && bytes.starts_with(kMagic); }

// "PK\3\4" before an entry, "PK\5\6" in a file without any.
bool IsNpz(std::string_view bytes) {
  return bytes.starts_with("PK\x03\x04") || bytes.starts_with("PK\x05\x06");
}

absl::StatusOr<Tensor> ParseNpy(std::string_view bytes) {
  PF_ASSIGN_OR_RETURN(const Header header, ReadHeader(bytes));
  PF_ASSIGN_OR_RETURN(const DataType type, TypeOf(header.descr));
  PF_ASSIGN_OR_RETURN(const int64_t expected, ByteSize(type, header.dims));
  const std::string_view elements = bytes.substr(header.size);
  if (elements.size() != static_cast<size_t>(expected)) {
    return absl::InvalidArgumentError(
        StrCat("expected ", expected, " bytes of elements, got ", elements.size()));
  }
  PF_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(type, header.dims));
  if (expected == 0) return tensor;
  auto* to = static_cast<char*>(tensor.mutable_data());
  if (header.fortran) {
    FromFortran(elements.data(), header.dims, BitWidth(type) / 8, to);
  } else {
    std::memcpy(to, elements.data(), elements.size());
  }
  return tensor;
}

absl::StatusOr<std::vector<NamedTensor>> LoadNpz(const std::string& path) {
  const ZipReader zip(unzOpen64(path.c_str()), &unzClose);
  if (zip == nullptr) {
    return InFile(path, absl::InvalidArgumentError("expected arrays of NumPy in a zip file"));
  }
  std::vector<NamedTensor> tensors;
  for (int more = unzGoToFirstFile(zip.get()); more == UNZ_OK; more = unzGoToNextFile(zip.get())) {
    std::string name;
    absl::StatusOr<Tensor> tensor = ReadArray(zip.get(), name);
    if (!tensor.ok()) return InFile(path, AtPlace(name, tensor.status()));
    tensors.emplace_back(std::move(name), *std::move(tensor));
  }
  return tensors;
}

absl::Status CheckNumpyType(std::string_view name, DataType type) {
  if (FindType(type) != nullptr) return absl::OkStatus();
  return absl::UnimplementedError(StrCat("\"", name, "\" is ", DataTypeName(type),
                                         ", which NumPy's files do not hold: expected a folder for "
                                         "files of ONNX (.pb) instead"));
}

absl::StatusOr<std::string> NpyBytes(const Tensor& tensor) {
  const NumpyType* type = FindType(tensor.dtype());
  if (type == nullptr) return CheckNumpyType("the tensor", tensor.dtype());
  std::string shape;
  for (const int64_t dim : tensor.dims()) StrAppend(&shape, dim, ", ");
  if (tensor.rank() > 1) shape.resize(shape.size() - 2);
  if (tensor.rank() == 1) shape.pop_back();
  std::string header = StrCat("{'descr': '", BitWidth(tensor.dtype()) == 8 ? "|" : "<", type->descr,
                              "', 'fortran_order': False, 'shape': (", shape, "), }");
  // Blanks and a line's end fill the header up.
  constexpr size_t kBefore = kLengthAt + 2;
  const size_t whole = (kBefore + header.size() + 1 + kAlignment - 1) / kAlignment * kAlignment;
  header.resize(whole - kBefore - 1, ' ');
  header += '\n';
  std::string bytes = StrCat(kMagic, std::string_view("\x01\x00", 2));
  bytes += static_cast<char>(header.size() & 0xff);
  bytes += static_cast<char>(header.size() >> 8);
  bytes += header;
  bytes.append(static_cast<const char*>(tensor.data()), tensor.byte_size());
  return bytes;
}

absl::Status SaveNpz(const std::vector<NamedTensor>& tensors, const std::string& path) {
  NewFile file(path);
  PF_RETURN_IF_ERROR(file.Open());
  const absl::Status written = WriteEntries(tensors, file.descriptor());
  if (!written.ok()) return InFile(path, written);
  PF_RETURN_IF_ERROR(file.Finish());
  return NewFile::Commit({&file});
}

}  // namespace pagefuse::tools
