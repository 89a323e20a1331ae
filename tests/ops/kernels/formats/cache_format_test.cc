// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/formats/cache_format.h"

#include <cctype>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "paths.h"

#include "pagefuse/ops/kernels/numeric/small_float.h"

namespace pagefuse {
namespace {

using ::testing::ElementsAre;

constexpr CacheFormat kInt8 = {.mode = KvQuantMode::kInt8PerTokenHead, .element = DataType::kInt8};
constexpr CacheFormat kInt4 = {.mode = KvQuantMode::kInt4PerTokenHead, .element = DataType::kUint8};
constexpr CacheFormat kFp8Head = {.mode = KvQuantMode::kFp8PerTokenHead,
                                  .element = DataType::kFloat8E4M3FN};

struct Encoded {
  std::vector<uint8_t> data;
  float scale = -1;
};

Encoded Encode(const CacheFormat& format, std::vector<float> x, RowParams params = {}) {
  Encoded row{std::vector<uint8_t>(format.RowBytes(x.size()))};
  EncodeRow(format, params, x.data(), x.size(),
            {row.data.data(), reinterpret_cast<uint8_t*>(&row.scale)});
  return row;
}

TEST(CacheFormat, ParsesEveryModeAndRefusesOthers) {
  for (const char* name : {"none", "fp8_per_tensor", "int8_per_token_head", "fp8_per_token_head",
                           "int4_per_token_head"}) {
    const absl::StatusOr<KvQuantMode> mode = ParseKvQuantMode(name);
    ASSERT_TRUE(mode.ok()) << name;
    EXPECT_EQ(KvQuantModeName(*mode), name);
  }
  EXPECT_EQ(ParseKvQuantMode("int2").status().message(),
            "expected one of none, fp8_per_tensor, int8_per_token_head, fp8_per_token_head, "
            "int4_per_token_head, got \"int2\"");
  EXPECT_EQ(*ParseInt8Rounding("toward_zero"), Int8Rounding::kTowardZero);
  EXPECT_FALSE(ParseInt8Rounding("up").ok());
}

TEST(CacheFormat, AllowsTheTypesOfItsModeAndTheUint8Twin) {
  EXPECT_EQ(CacheFormat::Make(KvQuantMode::kNone, DataType::kBfloat16)->element,
            DataType::kBfloat16);
  EXPECT_EQ(CacheFormat::Make(KvQuantMode::kFp8PerTensor, DataType::kUint8)->element,
            DataType::kFloat8E4M3FN);
  EXPECT_EQ(CacheFormat::Make(KvQuantMode::kInt8PerTokenHead, DataType::kFloat).status().message(),
            "expected type int8 for mode \"int8_per_token_head\", got float");
  EXPECT_FALSE(CacheFormat::Make(KvQuantMode::kNone, DataType::kUint8).ok());
  EXPECT_FALSE(CacheFormat::Make(KvQuantMode::kInt4PerTokenHead, DataType::kInt8).ok());
}

TEST(CacheFormat, CountsTheBytesOfAToken) {
  const CacheFormat bf16 = {.element = DataType::kBfloat16};
  EXPECT_EQ(bf16.BytesPerToken(/*kv_heads=*/2, 128, 128), 1024);
  EXPECT_EQ(kInt8.BytesPerToken(2, 64, 128), 2 * (64 + 4 + 128 + 4));
  EXPECT_EQ(kInt4.BytesPerToken(1, 64, 64), 2 * (32 + 4));
}

TEST(EncodeRow, Int8ScalesByTheLargestMagnitude) {
  const Encoded row = Encode(kInt8, {1, -2, 0.5f, 0.03f});
  EXPECT_EQ(row.scale, 2.0f / 127);
  EXPECT_THAT(row.data, ElementsAre(64, 0x81, 32, 2));  // 63.5 is a tie, 1.905 rounds up
}

TEST(EncodeRow, Int8TowardZeroTruncates) {
  CacheFormat format = kInt8;
  format.int8_rounding = Int8Rounding::kTowardZero;
  // scale 1: 127 / 127.
  EXPECT_THAT(Encode(format, {127, -2.9f, 2.9f, -0.5f}).data, ElementsAre(127, 0xFE, 2, 0));
}

TEST(EncodeRow, RowOfZerosHasTheSmallestScale) {
  for (const CacheFormat& format : {kInt8, kFp8Head}) {
    const Encoded row = Encode(format, {0, 0, 0});
    EXPECT_EQ(row.scale, 1e-6f);
    EXPECT_THAT(row.data, ElementsAre(0, 0, 0));
  }
}

TEST(EncodeRow, Fp8PerTensorDividesByTheScale) {
  const CacheFormat format = {.mode = KvQuantMode::kFp8PerTensor,
                              .element = DataType::kFloat8E4M3FN};
  // 1 / 0.5 = 2, -300 / 0.5 saturates at -448.
  EXPECT_THAT(Encode(format, {1, -300}, {.tensor_scale = 0.5f}).data, ElementsAre(0x40, 0xFE));
}

TEST(EncodeRow, ErrorsStayBelowHalfAStep) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> x(96);
  for (float& v : x) v = normal(random);
  for (const CacheFormat& format : {kInt8, kFp8Head}) {
    const Encoded row = Encode(format, x);
    std::vector<float> codes(x.size());
    Encoded copy = row;
    const float scale =
        DecodeRow(format, {}, {copy.data.data(), reinterpret_cast<uint8_t*>(&copy.scale)},
                  static_cast<int64_t>(x.size()), codes.data());
    for (size_t i = 0; i < x.size(); ++i) {
      const double step = format == kInt8
                              ? scale
                              : std::max(scale * std::ldexp(1.0, -9), std::fabs(double{x[i]}) / 8);
      EXPECT_LE(std::fabs(double{codes[i]} * scale - x[i]), step * 0.5001) << i;
    }
  }
}

TEST(EncodeRow, Int4RotatesScalesAndKeepsItsZeroPointInTheScale) {
  const std::vector<float> signs = {1, -1, 1, 1};
  // signs * x = 1, -2, 3, 4; H of it = 6, 2, -8, 4 (sums with signs ++++, +-+-, ++--, +--+).
  const Encoded row = Encode(kInt4, {1, 2, 3, 4}, {.rht_signs = signs.data()});
  const float scale = 14.0f / 15;
  uint32_t bits;
  std::memcpy(&bits, &row.scale, 4);
  EXPECT_EQ(bits & 15, 9u);  // round(8 / scale) = round(8.57)
  EXPECT_EQ(bits & ~15u, std::bit_cast<uint32_t>(scale) & ~15u);
  // q = round(y / scale + 9): 15.43 is cut to 15, 11.14, 0.43, 13.29.
  EXPECT_THAT(row.data, ElementsAre(0xBF, 0xD0));
}

TEST(DecodeRow, UndoesInt4InTheTransformedSpace) {
  std::vector<uint8_t> data = {0xBF, 0xD0};
  float scale = std::bit_cast<float>((std::bit_cast<uint32_t>(0.5f) & ~15u) | 9);
  std::vector<float> codes(4);
  const float row_scale =
      DecodeRow(kInt4, {}, {data.data(), reinterpret_cast<uint8_t*>(&scale)}, 4, codes.data());
  EXPECT_EQ(row_scale, 0.5f);
  EXPECT_THAT(codes, ElementsAre(6, 2, -9, 4));
}

TEST(HadamardTransform, AppliedTwiceMultipliesByTheSize) {
  std::vector<float> x = {1, 2, 3, 4, 5, 6, 7, -8};
  const std::vector<float> before = x;
  HadamardTransform(x.data(), 8);
  EXPECT_EQ(x[0], 20);  // the first row of H is all ones
  HadamardTransform(x.data(), 8);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(x[i], 8 * before[i]);
}

std::string FileText(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The files of docs/adding_a_cache_format.md, for the format of this name.
std::set<std::string> DocumentedFiles(const std::string& name) {
  std::istringstream doc(FileText(SourcePath("docs/adding_a_cache_format.md")));
  std::set<std::string> files;
  for (std::string line; std::getline(doc, line);) {
    constexpr std::string_view kStart = "| `ops/";
    if (!line.starts_with(kStart)) continue;
    std::string file = line.substr(3, line.find('`', 3) - 3);
    if (const size_t at = file.find("NAME"); at != std::string::npos) file.replace(at, 4, name);
    files.insert(file);
  }
  return files;
}

// int8_per_token_head is Int8PerTokenHead in code.
std::string NameInCode(std::string_view name) {
  std::string code;
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '_') continue;
    const bool first = i == 0 || name[i - 1] == '_';
    code += first ? static_cast<char>(std::toupper(name[i])) : name[i];
  }
  return code;
}

TEST(RowFormats, AreNamedInTheFilesOfTheDocumentAlone) {
  for (const RowFormat& format : RowFormats()) {
    if (format.scales == ScaleKind::kNone) continue;  // "none" says nothing in code
    const std::string name(format.name);
    std::set<std::string> files;
    for (const char* folder : {"base", "ir", "ops", "passes", "runtime", "tools", "bench"}) {
      const std::filesystem::path top = SourcePath("");
      for (const auto& entry : std::filesystem::recursive_directory_iterator(top / folder)) {
        if (!entry.is_regular_file()) continue;
        const std::string file = std::filesystem::relative(entry.path(), top).string();
        // A new format runs without these.
        if (file.starts_with("ops/kernels/cuda/") || file == "ops/cuda/known_formats.h") continue;
        const std::string text = FileText(entry.path());
        const bool is_source = file.ends_with(".cc") || file.ends_with(".h");
        if ((is_source && text.find(NameInCode(name)) != std::string::npos) ||
            text.find("formats/" + name + ".cc") != std::string::npos) {
          files.insert(file);
        }
      }
    }
    EXPECT_EQ(files, DocumentedFiles(name)) << name;
    EXPECT_LE(files.size(), 6u);
  }
}

TEST(CacheRows, AddressADenseTensor) {
  uint8_t data[1];
  uint8_t scales[1];
  const CacheShape shape = {.num_blocks = 3, .block_size = 4, .kv_heads = 2, .head_size = 16};
  const CacheRows rows = DenseRows(kInt8, shape, data, scales);
  const RowAddress row = rows.AtSlot(/*slot=*/9, /*head=*/1);  // block 2, row 1
  EXPECT_EQ(row.data - data, ((2 * 4 + 1) * 2 + 1) * 16);
  EXPECT_EQ(row.scale - scales, ((2 * 4 + 1) * 2 + 1) * 4);
  EXPECT_EQ(DenseRows({}, shape, data, nullptr).At(0, 0, 0).scale, nullptr);
}

}  // namespace
}  // namespace pagefuse
