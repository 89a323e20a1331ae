// SPDX-License-Identifier: Apache-2.0
// Tensors over memory that is owned, borrowed or mapped.
#include "pagefuse/ir/tensor/tensor.h"

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "must.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/base/packed_types.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

std::string Message(const absl::Status& status) { return std::string(StdView(status.message())); }

TEST(Tensor, AllocatedMemoryIsZeroAndAligned) {
  // The larger one comes from another place than the smaller one.
  for (const int64_t count : {1, 3, 1000, 1 << 20}) {
    Tensor tensor = *Tensor::Allocate(DataType::kFloat, {count});
    EXPECT_THAT(tensor.values<float>(), Each(0.0f));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data()) % 64, 0u);
    EXPECT_NE(tensor.mutable_data(), nullptr);
    EXPECT_EQ(tensor.byte_size(), count * 4);
  }
}

TEST(Tensor, EveryTypeHasItsSize) {
  for (int32_t code = 1; code <= kLastDataType; ++code) {
    const auto type = static_cast<DataType>(code);
    const Tensor tensor = Must(Tensor::Allocate(type, {3, 5}));
    EXPECT_EQ(tensor.size(), 15);
    EXPECT_EQ(tensor.byte_size(), (15 * BitWidth(type) + 7) / 8) << DataTypeName(type);
    EXPECT_EQ(DataTypeFromName(DataTypeName(type)), type);
    EXPECT_EQ(DataTypeFromCode(code), type);
  }
  EXPECT_EQ(DataTypeFromCode(0), std::nullopt);
  EXPECT_EQ(DataTypeFromCode(kLastDataType + 1), std::nullopt);
  EXPECT_EQ(DataTypeFromCode(-1), std::nullopt);
  EXPECT_EQ(DataTypeFromName("undefined"), std::nullopt);
}

TEST(Tensor, TensorsWithoutElementsAreFine) {
  const Tensor tensor = *Tensor::Allocate(DataType::kFloat, {2, 0, 3});
  EXPECT_EQ(tensor.size(), 0);
  EXPECT_EQ(tensor.byte_size(), 0);
  EXPECT_TRUE(tensor.defined());
  EXPECT_TRUE(tensor.values<float>().empty());
  EXPECT_TRUE(tensor.Clone()->IdenticalTo(tensor));
  EXPECT_TRUE(Tensor::View(DataType::kFloat, {0}, nullptr).ok());
}

TEST(Tensor, SizesThatDoNotFitAreRefused) {
  EXPECT_EQ(Message(Tensor::Allocate(DataType::kFloat, {kMax, 2}).status()),
            "expected dims of a tensor that fits in memory, got float[9223372036854775807, 2]");
  EXPECT_FALSE(Tensor::Allocate(DataType::kDouble, {kMax / 4}).ok());
  EXPECT_FALSE(Tensor::Allocate(DataType::kFloat, {-1}).ok());
  EXPECT_EQ(Tensor::Allocate(DataType::kInt8, {kMaxElements}).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Tensor::Allocate(DataType::kString, {int64_t{1} << 40}).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(*ByteSize(DataType::kInt4, {kMaxElements - 1}), kMaxElements / 2);
}

TEST(Tensor, AViewLiesInsideItsBuffer) {
  const std::shared_ptr<Buffer> buffer = *Buffer::Allocate(16);
  EXPECT_TRUE(Tensor::View(DataType::kFloat, {2}, buffer, 8).ok());
  EXPECT_TRUE(Tensor::View(DataType::kFloat, {0}, buffer, 16).ok());
  EXPECT_EQ(Message(Tensor::View(DataType::kFloat, {2}, buffer, 9).status()),
            "expected 8 bytes at offset 9 for float[2], got a buffer of 16 bytes");
  EXPECT_FALSE(Tensor::View(DataType::kInt8, {1}, buffer, 17).ok());
  EXPECT_FALSE(Tensor::View(DataType::kInt8, {1}, buffer, SIZE_MAX).ok());
  EXPECT_FALSE(Tensor::View(DataType::kInt8, {1}, nullptr).ok());
  EXPECT_FALSE(Tensor::View(DataType::kString, {1}, buffer).ok());
  EXPECT_FALSE(Tensor::View(DataType::kUndefined, {1}, buffer).ok());
}

TEST(Tensor, CopiesShareTheirBufferAndClonesDoNot) {
  Tensor tensor = Tensor::Of<int32_t>({3}, {1, 2, 3});
  const Tensor copy = tensor;
  const Tensor clone = *tensor.Clone();
  EXPECT_TRUE(clone.IdenticalTo(tensor));
  tensor.mutable_values<int32_t>()[1] = 7;
  EXPECT_THAT(copy.values<int32_t>(), ElementsAre(1, 7, 3));
  EXPECT_THAT(clone.values<int32_t>(), ElementsAre(1, 2, 3));
  EXPECT_FALSE(clone.IdenticalTo(tensor));
}

TEST(Tensor, BorrowedMemoryIsTheCallers) {
  float values[4] = {1, 2, 3, 4};
  Tensor tensor = *Tensor::View(DataType::kFloat, {2, 2}, Buffer::Borrow(values, sizeof(values)));
  tensor.mutable_values<float>()[3] = 9;
  EXPECT_EQ(values[3], 9);
  Tensor constant =
      *Tensor::View(DataType::kFloat, {2, 2}, Buffer::BorrowConst(values, sizeof(values)));
  EXPECT_EQ(constant.mutable_data(), nullptr);
  EXPECT_EQ(constant.data(), values);
  EXPECT_NE(constant.Clone()->mutable_data(), nullptr);
}

TEST(Tensor, AMappedFileIsReadOnlyAndStaysWhileATensorHoldsIt) {
  const std::string path = testing::TempDir() + "tensor_test_map";
  std::ofstream(path, std::ios::binary) << "abcdefgh";
  Tensor tensor;
  {
    std::shared_ptr<Buffer> file = Must(Buffer::MapFile(path));
    EXPECT_FALSE(file->writable());
    tensor = *Tensor::View(DataType::kUint8, {4}, file, 4);
  }
  std::filesystem::remove(path);
  EXPECT_THAT(tensor.values<uint8_t>(), ElementsAre('e', 'f', 'g', 'h'));
  EXPECT_EQ(tensor.mutable_data(), nullptr);
}

TEST(Tensor, WhatCannotBeMappedIsNamed) {
  EXPECT_EQ(Buffer::MapFile("/nowhere/at/all").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Message(Buffer::MapFile(testing::TempDir()).status()),
            StrCat("\"", testing::TempDir(), "\" is no regular file"));
  const std::string empty = testing::TempDir() + "tensor_test_empty";
  std::ofstream(empty).close();
  EXPECT_EQ((*Buffer::MapFile(empty))->size(), 0u);
  std::filesystem::remove(empty);
}

TEST(Tensor, ReshapedKeepsTheBytes) {
  const Tensor tensor = Tensor::Of<int64_t>({2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor flat = Must(tensor.Reshaped({6}));
  EXPECT_EQ(flat.data(), tensor.data());
  EXPECT_FALSE(flat.IdenticalTo(tensor));
  EXPECT_EQ(Message(tensor.Reshaped({4}).status()),
            "expected dims of 6 elements like [2, 3], got [4]");
  EXPECT_FALSE(tensor.Reshaped({-2, -3}).ok());
  EXPECT_FALSE(Tensor().Reshaped({0}).ok());
}

TEST(Tensor, StringsAreElementsToo) {
  const Tensor tensor = Tensor::Strings({2}, {"a", std::string("b\0c", 3)});
  EXPECT_EQ(tensor.size(), 2);
  EXPECT_EQ(tensor.byte_size(), 0);
  EXPECT_TRUE(tensor.Clone()->IdenticalTo(tensor));
  EXPECT_FALSE(tensor.IdenticalTo(Tensor::Strings({2}, {"a", "b"})));
  EXPECT_EQ(tensor.Reshaped({2, 1})->strings()[1].size(), 3u);
  EXPECT_EQ(Tensor::Allocate(DataType::kString, {2})->strings(),
            (std::vector<std::string>{"", ""}));
}

template <typename T>
void ExpectIntegers(const std::vector<T>& values) {
  const std::vector<int64_t> want(values.begin(), values.end());
  const int64_t count = static_cast<int64_t>(values.size());
  EXPECT_EQ(*IntegerValues(Tensor::Of<T>({count}, values)), want);
}

TEST(Tensor, IntegerValuesOfEveryIntegerType) {
  ExpectIntegers<int8_t>({-128, 0, 127});
  ExpectIntegers<uint8_t>({0, 255});
  ExpectIntegers<int16_t>({-32768, 32767});
  ExpectIntegers<uint16_t>({0, 65535});
  ExpectIntegers<int32_t>({std::numeric_limits<int32_t>::min(), 5});
  ExpectIntegers<uint32_t>({0, std::numeric_limits<uint32_t>::max()});
  ExpectIntegers<int64_t>({std::numeric_limits<int64_t>::min(), kMax});
  ExpectIntegers<uint64_t>({0, static_cast<uint64_t>(kMax)});
  ExpectIntegers<bool>({false, true});
  EXPECT_EQ(Message(IntegerValues(Tensor::Scalar<uint64_t>(UINT64_MAX)).status()),
            "element 0: expected a value that fits in int64, got 18446744073709551615");
  EXPECT_FALSE(IntegerValues(Tensor::Scalar<float>(1)).ok());
}

TEST(Tensor, FourBitIntegersArePackedLowNibbleFirst) {
  Tensor tensor = *Tensor::Allocate(DataType::kInt4, {3});
  ASSERT_EQ(tensor.byte_size(), 2);
  static_cast<uint8_t*>(tensor.mutable_data())[0] = 0x7f;  // -1, 7
  static_cast<uint8_t*>(tensor.mutable_data())[1] = 0xf8;  // -8, and what belongs to no element
  EXPECT_THAT(*IntegerValues(tensor), ElementsAre(-1, 7, -8));
  Tensor positive = *Tensor::View(DataType::kUint4, {3}, tensor.buffer());
  EXPECT_THAT(*IntegerValues(positive), ElementsAre(15, 7, 8));
}

TEST(Tensor, IntegersNeedNotBeAligned) {
  std::shared_ptr<Buffer> buffer = *Buffer::Allocate(24);
  const int64_t values[2] = {-5, kMax};
  std::memcpy(buffer->data() + 3, values, sizeof(values));
  const Tensor tensor = *Tensor::View(DataType::kInt64, {2}, buffer, 3);
  EXPECT_THAT(*IntegerValues(tensor), ElementsAre(-5, kMax));
}

}  // namespace
}  // namespace pagefuse
