// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ir/graph/content_key.h"

#include <algorithm>
#include <variant>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/tensor/absent_tensor.h"

namespace pagefuse {
namespace {

struct Writer {
  std::string& key;
  int64_t most;

  bool operator()(float x) const { return AppendBytes(key, x), true; }
  bool operator()(int64_t x) const { return AppendBytes(key, x), true; }
  bool operator()(const std::string& x) const { return AppendText(key, x), true; }
  bool operator()(const Tensor& x) const { return AppendTensor(key, x, most), true; }
  template <typename T>
  bool operator()(const std::vector<T>& list) const {
    AppendBytes(key, list.size());
    return std::ranges::all_of(list, [this](const T& x) { return (*this)(x); });
  }
  template <typename T>
  bool operator()(const T& /*other*/) const {
    return false;
  }
};

}  // namespace

void AppendText(std::string& key, const std::string& text) {
  StrAppend(&key, text.size(), ":", text);
}

void AppendTensor(std::string& key, const Tensor& tensor, int64_t most) {
  StrAppend(&key, DataTypeName(tensor.dtype()), DimsToString(tensor.dims()), ":");
  if (tensor.dtype() == DataType::kString) {
    for (const std::string& text : tensor.strings()) AppendText(key, text);
  } else if (tensor.byte_size() > most || IsAbsent(tensor)) {
    AppendBytes(key, tensor.data());
  } else if (tensor.byte_size() > 0) {
    key.append(static_cast<const char*>(tensor.data()), tensor.byte_size());
  }
}

bool AppendAttribute(std::string& key, const Attribute& attribute, int64_t most) {
  AppendBytes(key, attribute.value.index());
  return std::visit(Writer{key, most}, attribute.value);
}

}  // namespace pagefuse
