// SPDX-License-Identifier: Apache-2.0
#include "tools/run/numpy_file.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse::tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string Array(std::string_view dict, std::string_view elements) {
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(dict.size());
  bytes += '\0';
  return StrCat(bytes, dict, elements);
}

std::string ErrorOf(const std::string& bytes) {
  return std::string(ParseNpy(bytes).status().message());
}

TEST(NumpyFile, WritesWhatNumpyWrites) {
  const auto bytes = NpyBytes(Tensor::Of<float>({2, 1}, {1, 2}));
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_THAT(*bytes, HasSubstr("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }"));
  EXPECT_EQ(bytes->size(), 128 + 8);
  EXPECT_EQ((*bytes)[127], '\n');
  EXPECT_THAT(*NpyBytes(Tensor::Of<int8_t>({1}, {1})), HasSubstr("'|i1'"));
  EXPECT_THAT(*NpyBytes(Tensor::Of<int8_t>({1}, {1})), HasSubstr("'shape': (1,), }"));
  EXPECT_THAT(*NpyBytes(Tensor::Scalar<int64_t>(1)), HasSubstr("'shape': (), }"));
}

TEST(NumpyFile, ReadsEveryTypeBack) {
  for (const DataType type :
       {DataType::kBool, DataType::kInt8, DataType::kUint16, DataType::kInt64, DataType::kFloat16,
        DataType::kFloat, DataType::kDouble, DataType::kComplex64, DataType::kComplex128}) {
    Tensor tensor = *Tensor::Allocate(type, {2, 3});
    auto* bytes = static_cast<unsigned char*>(tensor.mutable_data());
    for (int64_t i = 0; i < tensor.byte_size(); ++i) bytes[i] = static_cast<unsigned char>(i % 2);
    const auto read = ParseNpy(*NpyBytes(tensor));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(read->IdenticalTo(tensor)) << DataTypeName(type);
  }
  EXPECT_FALSE(NpyBytes(*Tensor::Allocate(DataType::kBfloat16, {1})).ok());
}

TEST(NumpyFile, ReadsFortransOrder) {
  const std::string elements("\x01\x04\x02\x05\x03\x06", 6);
  const auto tensor =
      ParseNpy(Array("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }", elements));
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_THAT(tensor->values<uint8_t>(), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(NumpyFile, SaysWhatIsWrong) {
  EXPECT_THAT(ErrorOf("PK"), HasSubstr("expected an array of NumPy"));
  EXPECT_THAT(ErrorOf(Array("{'descr': '>f4', 'fortran_order': False, 'shape': (0,), }", "")),
              HasSubstr("expected little-endian elements, got \">f4\""));
  EXPECT_THAT(ErrorOf(Array("{'descr': '|O', 'fortran_order': False, 'shape': (), }", "")),
              HasSubstr("expected elements of numbers or booleans, got \"|O\""));
  EXPECT_THAT(ErrorOf(Array("{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }", "a")),
              HasSubstr("expected 2 bytes of elements, got 1"));
  EXPECT_THAT(ErrorOf(Array("{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': ()}", "")),
              HasSubstr("expected a plain type, an order and a shape"));
  EXPECT_FALSE(ParseNpy(Array("{'descr': '<f8', 'fortran_order': False, 'shape': "
                              "(4611686018427387904, 4611686018427387904), }",
                              ""))
                   .ok());
  EXPECT_THAT(ErrorOf(std::string("\x93NUMPY\x01\x00\xff\xff{", 11)), HasSubstr("is cut off"));
}

TEST(NumpyFile, ReadsArraysByNameAndRefusesADamagedFile) {
  const std::string path = testing::TempDir() + "numpy_file_test.npz";
  ASSERT_TRUE(
      SaveNpz({{"a", Tensor::Of<float>({2}, {1, 2})}, {"b/c", Tensor::Scalar<int64_t>(3)}}, path)
          .ok());
  const auto tensors = LoadNpz(path);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 2);
  EXPECT_EQ((*tensors)[1].first, "b/c");
  EXPECT_THAT((*tensors)[1].second.values<int64_t>(), ElementsAre(3));
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(180);
    file.put('!');
  }
  EXPECT_THAT(std::string(LoadNpz(path).status().message()), HasSubstr("a.npy: is damaged"));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace pagefuse::tools
