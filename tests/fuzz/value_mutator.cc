// SPDX-License-Identifier: Apache-2.0
#include "value_mutator.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace pagefuse::fuzz {
namespace {

constexpr int kNumTypes = 27;  // one more than there are: an unknown one

void MutateDims(Random& random, google::protobuf::RepeatedField<int64_t>& dims) {
  switch (random.Below(4)) {
    case 0:
      dims.Add(OddInt(random));
      break;
    case 1:
      if (!dims.empty()) dims.RemoveLast();
      break;
    case 2:
      if (dims.size() > 1) std::swap(dims[0], dims[static_cast<int>(random.Below(dims.size()))]);
      break;
    default:
      if (!dims.empty()) dims[static_cast<int>(random.Below(dims.size()))] = OddInt(random);
  }
}

void MutateIntData(Random& random, onnx::TensorProto& tensor) {
  if (tensor.int64_data_size() > 0) {
    tensor.set_int64_data(static_cast<int>(random.Below(tensor.int64_data_size())), OddInt(random));
  } else if (tensor.int32_data_size() > 0) {
    tensor.set_int32_data(static_cast<int>(random.Below(tensor.int32_data_size())),
                          static_cast<int32_t>(OddInt(random)));
  } else if (tensor.float_data_size() > 0) {
    tensor.set_float_data(static_cast<int>(random.Below(tensor.float_data_size())),
                          OddFloat(random));
  }
}

// One element of the raw bytes, under the width that the type has.
void MutateRawData(Random& random, onnx::TensorProto& tensor) {
  std::string& raw = *tensor.mutable_raw_data();
  const auto write = [&](const auto& value) {
    const size_t count = raw.size() / sizeof(value);
    if (count > 0) {
      std::memcpy(raw.data() + random.Below(count) * sizeof(value), &value, sizeof(value));
    }
  };
  switch (tensor.data_type()) {
    case onnx::TensorProto::INT64:
      return write(OddInt(random));
    case onnx::TensorProto::INT32:
      return write(static_cast<int32_t>(OddInt(random)));
    case onnx::TensorProto::FLOAT:
      return write(OddFloat(random));
    case onnx::TensorProto::DOUBLE:
      return write(static_cast<double>(OddFloat(random)));
    default:
      MutateBytes(random, raw);
  }
}

void MakeExternal(Random& random, onnx::TensorProto& tensor) {
  static const char* const kPlaces[] = {
      "small.data", "missing.data", "../small.data", "/etc/hostname", "", ".", "outside.data"};
  tensor.clear_raw_data();
  tensor.set_data_location(onnx::TensorProto::EXTERNAL);
  const auto add = [&tensor](const std::string& key, const std::string& value) {
    auto* entry = tensor.add_external_data();
    entry->set_key(key);
    entry->set_value(value);
  };
  add("location", kPlaces[random.Below(std::size(kPlaces))]);
  if (random.OneIn(2)) add("offset", std::to_string(OddInt(random)));
  if (random.OneIn(2)) add("length", std::to_string(OddInt(random)));
}

size_t RawWidth(int type) {
  switch (type) {
    case onnx::TensorProto::INT64:
    case onnx::TensorProto::DOUBLE:
      return 8;
    case onnx::TensorProto::FLOAT:
    case onnx::TensorProto::INT32:
      return 4;
    case onnx::TensorProto::FLOAT16:
    case onnx::TensorProto::BFLOAT16:
      return 2;
    default:
      return 1;
  }
}

}  // namespace

void FitData(onnx::TensorProto& tensor) {
  constexpr int64_t kMost = 4096;
  int64_t elements = 1;
  for (const int64_t dim : tensor.dims()) {
    if (dim < 0 || dim > kMost) return;
    elements *= dim;
    if (elements > kMost) return;
  }
  const auto fit = [elements](auto& list) {
    while (list.size() > elements) list.RemoveLast();
    while (list.size() < elements) list.Add(list.empty() ? 1 : list[0]);
  };
  if (tensor.has_raw_data()) {
    const size_t bytes = static_cast<size_t>(elements) * RawWidth(tensor.data_type());
    std::string& raw = *tensor.mutable_raw_data();
    if (raw.empty()) raw.assign(8, '\1');
    while (raw.size() < bytes) raw += raw.substr(0, bytes - raw.size());
    raw.resize(bytes);
  } else if (tensor.data_type() == onnx::TensorProto::INT64) {
    fit(*tensor.mutable_int64_data());
  } else if (tensor.data_type() == onnx::TensorProto::FLOAT) {
    fit(*tensor.mutable_float_data());
  } else if (tensor.int32_data_size() > 0) {
    fit(*tensor.mutable_int32_data());
  }
}

int64_t OddInt(Random& random) {
  static constexpr int64_t kSmall[] = {0, 1, -1, 2, 3, 4, 5, 7, 8, 16, -2, -3, 64, 128};
  static constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  static constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  static constexpr int64_t kLarge[] = {
      255,          256,         1 << 10,   1 << 16,    1 << 20,   (1 << 24) + 1,   1 << 30,
      INT32_MAX,    INT32_MIN,   1LL << 31, UINT32_MAX, 1LL << 32, (1LL << 32) + 1, 1LL << 40,
      1LL << 60,    1LL << 62,   kMax,      kMax - 1,   kMin,      kMin + 1,        -(1LL << 32),
      -(1LL << 60), kMax / 2 + 1};
  if (!random.OneIn(3)) return kSmall[random.Below(std::size(kSmall))];
  return kLarge[random.Below(std::size(kLarge))];
}

float OddFloat(Random& random) {
  static constexpr float kFloats[] = {0.f,   -0.f,  1.f,    -1.f,  0.5f,   2.f,   1e-45f, 1e-30f,
                                      1e30f, 3e38f, -3e38f, 1e10f, -1e10f, 448.f, 1e6f};
  switch (random.Below(6)) {
    case 0:
      return std::numeric_limits<float>::quiet_NaN();
    case 1:
      return random.OneIn(2) ? INFINITY : -INFINITY;
    default:
      return kFloats[random.Below(std::size(kFloats))];
  }
}

std::string OddName(Random& random, const std::vector<std::string>& names) {
  switch (random.Below(24)) {
    case 0:
      return "";
    case 1:
      return random.OneIn(4) ? "no such name" : "";
    default:
      return names.empty() ? "" : names[random.Below(names.size())];
  }
}

void MutateTensor(Random& random, onnx::TensorProto& tensor) {
  switch (random.Below(8)) {
    case 0:
      tensor.set_data_type(static_cast<int>(random.Below(kNumTypes)));
      break;
    case 1:
    case 2:
      MutateDims(random, *tensor.mutable_dims());
      if (!random.OneIn(8)) FitData(tensor);
      break;
    case 3:
      if (random.OneIn(2)) MakeExternal(random, tensor);
      break;
    case 4:  // one element
      tensor.clear_dims();
      FitData(tensor);
      break;
    default:
      if (tensor.has_raw_data()) {
        MutateRawData(random, tensor);
      } else {
        MutateIntData(random, tensor);
      }
  }
}

void MutateType(Random& random, onnx::TypeProto& type) {
  if (random.OneIn(12)) {  // no tensor at all
    if (random.OneIn(2)) {
      type.mutable_sequence_type()->mutable_elem_type()->mutable_tensor_type()->set_elem_type(1);
    } else {
      type.clear_value();
    }
    return;
  }
  auto& tensor = *type.mutable_tensor_type();
  const auto odd_dim = [&](onnx::TensorShapeProto::Dimension& dim) {
    switch (random.Below(4)) {
      case 0:
        dim.set_dim_param(random.OneIn(3) ? "past + seq" : "N");
        break;
      case 1:
        dim.clear_value();
        break;
      default:
        dim.set_dim_value(OddInt(random));
    }
  };
  auto& dims = *tensor.mutable_shape()->mutable_dim();
  switch (random.Below(6)) {
    case 0:
      tensor.set_elem_type(static_cast<int>(random.Below(kNumTypes)));
      break;
    case 1:
      tensor.clear_shape();
      break;
    case 2:
      if (!dims.empty()) dims.RemoveLast();
      break;
    case 3:
      odd_dim(*dims.Add());
      break;
    default:
      if (!dims.empty()) odd_dim(random.Pick(dims));
  }
}

void MutateAttribute(Random& random, onnx::AttributeProto& attribute) {
  if (random.OneIn(12))
    attribute.set_type(static_cast<onnx::AttributeProto::AttributeType>(
        random.Below(onnx::AttributeProto::AttributeType_ARRAYSIZE)));
  switch (attribute.type()) {
    case onnx::AttributeProto::INT:
      if (random.OneIn(3)) {  // one off, without overflow
        attribute.set_i(
            static_cast<int64_t>(static_cast<uint64_t>(attribute.i()) + 1 - 2 * random.Below(2)));
        break;
      }
      attribute.set_i(OddInt(random));
      break;
    case onnx::AttributeProto::FLOAT:
      attribute.set_f(OddFloat(random));
      break;
    case onnx::AttributeProto::STRING:
      MutateBytes(random, *attribute.mutable_s());
      break;
    case onnx::AttributeProto::TENSOR:
      MutateTensor(random, *attribute.mutable_t());
      break;
    case onnx::AttributeProto::INTS:
      MutateDims(random, *attribute.mutable_ints());
      break;
    case onnx::AttributeProto::FLOATS:
      if (random.OneIn(2) || attribute.floats().empty())
        attribute.add_floats(OddFloat(random));
      else
        attribute.set_floats(static_cast<int>(random.Below(attribute.floats_size())),
                             OddFloat(random));
      break;
    case onnx::AttributeProto::STRINGS:
      if (random.OneIn(2) || attribute.strings().empty())
        attribute.add_strings("odd");
      else
        MutateBytes(random, *attribute.mutable_strings(
                                static_cast<int>(random.Below(attribute.strings_size()))));
      break;
    default:
      if (random.OneIn(4)) attribute.set_ref_attr_name("alpha");
  }
}

void MutateBytes(Random& random, std::string& bytes) {
  const size_t at = random.Below(bytes.size());
  const size_t length = random.Below(std::min<size_t>(bytes.size() - at, 64) + 1);
  switch (random.Below(5)) {
    case 0:
      if (!bytes.empty()) bytes[at] = static_cast<char>(random.Next());
      break;
    case 1:
      if (!bytes.empty()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.Below(8)));
      break;
    case 2:
      bytes.erase(at, length);
      break;
    case 3:
      bytes.insert(at, bytes.substr(at, length));
      break;
    default:
      bytes.insert(at, 1, static_cast<char>(random.Next()));
  }
}

}  // namespace pagefuse::fuzz
