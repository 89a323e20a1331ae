// SPDX-License-Identifier: Apache-2.0
// TensorProto in all its forms: typed fields of every element type, raw data, sparse tensors.
#include "pagefuse/ir/onnx/import_tensor.h"

#include <bit>
#include <cmath>
#include <limits>

#include "must.h"
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"

namespace pagefuse {
namespace {

using ::testing::ElementsAre;

template <typename Proto>
Proto FromText(const std::string& text) {
  Proto proto;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &proto)) << text;
  return proto;
}

absl::StatusOr<Tensor> Import(const std::string& text) {
  return ImportTensor(FromText<onnx::TensorProto>(text).SerializeAsString(), nullptr);
}

std::string Error(const std::string& text) {
  const absl::StatusOr<Tensor> tensor = Import(text);
  EXPECT_FALSE(tensor.ok()) << text;
  return std::string(StdView(tensor.status().message()));
}

absl::StatusOr<Tensor> Sparse(const std::string& text) {
  ExternalData none({});
  return ImportSparse(FromText<onnx::SparseTensorProto>(text), none);
}

// A tensor of three elements written in the typed field, and the same bytes as raw data.
struct TypedForm {
  const char* name;
  DataType type;
  const char* field;
  std::string raw;
};

class TypedData : public testing::TestWithParam<TypedForm> {};

TEST_P(TypedData, MeansTheSameAsRawData) {
  const TypedForm& form = GetParam();
  onnx::TensorProto typed = FromText<onnx::TensorProto>(form.field);
  typed.add_dims(3);
  typed.set_data_type(static_cast<int32_t>(form.type));
  onnx::TensorProto raw;
  raw.add_dims(3);
  raw.set_data_type(static_cast<int32_t>(form.type));
  raw.set_raw_data(form.raw);
  const Tensor a = Must(ImportTensor(typed.SerializeAsString(), nullptr));
  const Tensor b = Must(ImportTensor(raw.SerializeAsString(), nullptr));
  EXPECT_TRUE(a.IdenticalTo(b));
  EXPECT_EQ(a.byte_size(), static_cast<int64_t>(form.raw.size()));
  // One entry less is an error.
  typed.clear_dims();
  typed.add_dims(5);
  EXPECT_FALSE(ImportTensor(typed.SerializeAsString(), nullptr).ok());
  raw.mutable_raw_data()->pop_back();
  EXPECT_FALSE(ImportTensor(raw.SerializeAsString(), nullptr).ok());
}

template <typename... Bytes>
std::string Raw(Bytes... bytes) {
  return {static_cast<char>(bytes)...};
}

template <typename T>
std::string RawOf(std::initializer_list<T> values) {
  return std::string(reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T));
}

const char* const kBytes = "int32_data: 1 int32_data: 127 int32_data: 200";

INSTANTIATE_TEST_SUITE_P(
    Types, TypedData,
    testing::Values(
        TypedForm{"float", DataType::kFloat, "float_data: 1 float_data: inf float_data: -inf",
                  RawOf<float>({1, INFINITY, -INFINITY})},
        TypedForm{"uint8", DataType::kUint8, kBytes, Raw(1, 127, 200)},
        TypedForm{"int8", DataType::kInt8, "int32_data: 1 int32_data: 127 int32_data: -128",
                  Raw(1, 127, 128)},
        TypedForm{"uint16", DataType::kUint16, "int32_data: 1 int32_data: 65535 int32_data: 258",
                  Raw(1, 0, 255, 255, 2, 1)},
        TypedForm{"int16", DataType::kInt16, "int32_data: 1 int32_data: -32768 int32_data: -2",
                  Raw(1, 0, 0, 128, 254, 255)},
        TypedForm{"int32", DataType::kInt32,
                  "int32_data: 1 int32_data: -2147483648 int32_data: 2147483647",
                  RawOf<int32_t>({1, std::numeric_limits<int32_t>::min(), 2147483647})},
        TypedForm{"int64", DataType::kInt64,
                  "int64_data: 1 int64_data: -9223372036854775808 int64_data: 9223372036854775807",
                  RawOf<int64_t>({1, std::numeric_limits<int64_t>::min(),
                                  std::numeric_limits<int64_t>::max()})},
        TypedForm{"bool", DataType::kBool, "int32_data: 1 int32_data: 0 int32_data: 1",
                  Raw(1, 0, 1)},
        TypedForm{"float16", DataType::kFloat16,
                  "int32_data: 15360 int32_data: 31744 int32_data: 64512",
                  Raw(0, 0x3c, 0, 0x7c, 0, 0xfc)},
        TypedForm{"double", DataType::kDouble, "double_data: 1 double_data: inf double_data: -inf",
                  RawOf<double>({1, INFINITY, -INFINITY})},
        TypedForm{"uint32", DataType::kUint32,
                  "uint64_data: 1 uint64_data: 4294967295 uint64_data: 0",
                  RawOf<uint32_t>({1, 4294967295, 0})},
        TypedForm{"uint64", DataType::kUint64,
                  "uint64_data: 1 uint64_data: 18446744073709551615 uint64_data: 0",
                  RawOf<uint64_t>({1, UINT64_MAX, 0})},
        TypedForm{"complex64", DataType::kComplex64, "float_data: [1, 2, 3, 4, 5, inf]",
                  RawOf<float>({1, 2, 3, 4, 5, INFINITY})},
        TypedForm{"complex128", DataType::kComplex128, "double_data: [1, 2, 3, 4, 5, -6]",
                  RawOf<double>({1, 2, 3, 4, 5, -6})},
        TypedForm{"bfloat16", DataType::kBfloat16,
                  "int32_data: 16256 int32_data: 32640 int32_data: -128",
                  Raw(0x80, 0x3f, 0x80, 0x7f, 0x80, 0xff)},
        TypedForm{"float8e4m3fn", DataType::kFloat8E4M3FN, kBytes, Raw(1, 127, 200)},
        TypedForm{"float8e4m3fnuz", DataType::kFloat8E4M3FNUZ, kBytes, Raw(1, 127, 200)},
        TypedForm{"float8e5m2", DataType::kFloat8E5M2, kBytes, Raw(1, 127, 200)},
        TypedForm{"float8e5m2fnuz", DataType::kFloat8E5M2FNUZ, kBytes, Raw(1, 127, 200)},
        TypedForm{"float8e8m0", DataType::kFloat8E8M0, kBytes, Raw(1, 127, 200)},
        // Two elements an entry.
        TypedForm{"uint4", DataType::kUint4, "int32_data: 33 int32_data: 3", Raw(33, 3)},
        TypedForm{"int4", DataType::kInt4, "int32_data: -1 int32_data: 8", Raw(255, 8)},
        TypedForm{"float4e2m1", DataType::kFloat4E2M1, "int32_data: 250 int32_data: 1",
                  Raw(250, 1)}),
    [](const auto& info) { return info.param.name; });

TEST(ImportTensor, StringsHaveTheirOwnField) {
  const Tensor tensor =
      Must(Import("data_type: 8 dims: 2 string_data: 'a' string_data: 'b\\000c'"));
  EXPECT_THAT(tensor.strings(), ElementsAre("a", std::string("b\0c", 3)));
  EXPECT_EQ(Error("data_type: 8 dims: 2 string_data: 'a'"),
            "string_data: expected the strings of [2], got 1");
}

TEST(ImportTensor, AScalarHasNoDims) {
  const Tensor tensor = Must(Import("data_type: 1 float_data: 2.5"));
  EXPECT_EQ(tensor.rank(), 0);
  EXPECT_THAT(tensor.values<float>(), ElementsAre(2.5f));
}

TEST(ImportTensor, EmptyTensorsNeedNoField) {
  for (const char* text : {"data_type: 1 dims: 0", "data_type: 1 dims: [2, 0] raw_data: ''",
                           "data_type: 21 dims: 0", "data_type: 8 dims: 0"}) {
    const absl::StatusOr<Tensor> tensor = Import(text);
    ASSERT_TRUE(tensor.ok()) << text << ": " << tensor.status();
    EXPECT_EQ(tensor->size(), 0);
  }
}

TEST(ImportTensor, NotANumberIsANumber) {
  const Tensor tensor = Must(Import("data_type: 1 dims: 1 float_data: nan"));
  EXPECT_TRUE(std::isnan(tensor.values<float>()[0]));
}

TEST(ImportTensor, ValuesThatDoNotFitAreNamed) {
  EXPECT_EQ(Error("data_type: 2 dims: 1 int32_data: 256"),
            "int32_data: element 0: expected a uint8, got 256");
  EXPECT_EQ(Error("data_type: 10 dims: 2 int32_data: 0 int32_data: 65536"),
            "int32_data: element 1: expected a float16, got 65536");
  EXPECT_EQ(Error("data_type: 12 dims: 1 uint64_data: 4294967296"),
            "uint64_data: element 0: expected a uint32, got 4294967296");
  EXPECT_EQ(Error("data_type: 9 dims: 1 int32_data: 2"),
            "element 0: expected a bool, 0 or 1, got 2");
}

TEST(ImportTensor, DataInTheWrongFieldIsNotFound) {
  EXPECT_EQ(Error("data_type: 1 dims: 1 int32_data: 1"), "float_data: expected 1 elements, got 0");
  EXPECT_EQ(Error("data_type: 8 dims: 1 raw_data: 'a'"),
            "string_data: expected the strings of [1], got 0");
  EXPECT_EQ(Error("data_type: 1 dims: 1 segment { begin: 0 end: 1 } float_data: 1"),
            "expected a whole tensor, got one stored in segments");
}

TEST(ImportTensor, LargeRawDataIsAdoptedAndAligned) {
  onnx::TensorProto proto;
  proto.set_data_type(1);
  proto.add_dims(4096);
  std::string bytes(4096 * 4, '\0');
  bytes[5] = 1;
  proto.set_raw_data(bytes);
  const Tensor tensor = Must(ImportTensor(proto.SerializeAsString(), nullptr));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data()) % alignof(double), 0u);
  EXPECT_EQ(std::bit_cast<int32_t>(tensor.values<float>()[1]), 256);
}

TEST(ImportSparse, FlatIndicesAndCoordinatesMeanTheSame) {
  const Tensor flat =
      Must(Sparse("dims: [2, 3] values { data_type: 1 dims: 2 float_data: [5, 7] }"
                  "indices { data_type: 7 dims: 2 int64_data: [1, 5] }"));
  const Tensor coordinates =
      Must(Sparse("dims: [2, 3] values { data_type: 1 dims: 2 float_data: [5, 7] }"
                  "indices { data_type: 7 dims: [2, 2] int64_data: [0, 1, 1, 2] }"));
  EXPECT_THAT(flat.values<float>(), ElementsAre(0, 5, 0, 0, 0, 7));
  EXPECT_TRUE(flat.IdenticalTo(coordinates));
}

TEST(ImportSparse, NoEntriesMeanZeros) {
  const Tensor tensor = Must(
      Sparse("dims: 3 values { data_type: 10 dims: 0 } indices { data_type: 7 dims: [0, 1] }"));
  EXPECT_EQ(tensor.dims(), std::vector<int64_t>{3});
  EXPECT_THAT(tensor.values<uint16_t>(), ElementsAre(0, 0, 0));
}

TEST(ImportSparse, WhatIsWrongIsNamed) {
  const auto error = [](const std::string& text) {
    return std::string(StdView(Sparse(text).status().message()));
  };
  const std::string values = "dims: [2, 3] values { data_type: 1 dims: 2 float_data: [5, 7] }";
  EXPECT_EQ(error(values + "indices { data_type: 7 dims: 2 int64_data: [5, 1] }"),
            "sparse entry 1: indices are not sorted, or one is there twice");
  EXPECT_EQ(error(values + "indices { data_type: 7 dims: 2 int64_data: [1, 1] }"),
            "sparse entry 1: indices are not sorted, or one is there twice");
  EXPECT_EQ(error(values + "indices { data_type: 7 dims: 2 int64_data: [-1, 1] }"),
            "sparse entry 0: index -1 is outside of [2, 3]");
  EXPECT_EQ(error(values + "indices { data_type: 7 dims: [2, 2] int64_data: [0, 3, 1, 0] }"),
            "sparse entry 0: index 3 is outside of [2, 3]");
  EXPECT_EQ(error(values + "indices { data_type: 6 dims: 2 int32_data: [1, 2] }"),
            "sparse indices: expected int64[2] or int64[2, 2], got int32[2]");
  EXPECT_EQ(error(values + "indices { data_type: 7 dims: 3 int64_data: [1, 2, 3] }"),
            "sparse indices: expected int64[2] or int64[2, 2], got int64[3]");
  EXPECT_EQ(error("dims: 4 values { data_type: 22 dims: 2 int32_data: 1 }"
                  "indices { data_type: 7 dims: 2 int64_data: [1, 2] }"),
            "sparse values: expected a list of numbers of whole bytes, got int4[2]");
}

}  // namespace
}  // namespace pagefuse
