// SPDX-License-Identifier: Apache-2.0
// The examples of docs/formats.md hold.
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "must.h"
#include "paths.h"

#include "pagefuse/ops/kernels/formats/cache_format.h"
#include "pagefuse/ops/kernels/formats/group_format.h"
#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/ops/kernels/numeric/packing.h"

namespace pagefuse {
namespace {

// `name(parameter): values -> data | scale -> values that come back`
struct Example {
  std::string line, name, parameter;
  std::vector<float> values;
  std::vector<uint8_t> data, scale;
  std::vector<float> back;
};

std::vector<std::string> Words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::vector<float> Numbers(const std::string& text) {
  std::vector<float> numbers;
  for (const std::string& word : Words(text)) numbers.push_back(std::stof(word));
  return numbers;
}

std::vector<uint8_t> Bytes(const std::string& text) {
  std::vector<uint8_t> bytes;
  for (const std::string& word : Words(text)) {
    bytes.push_back(static_cast<uint8_t>(std::stoi(word, nullptr, 16)));
  }
  return bytes;
}

Example Parse(const std::string& line) {
  const size_t colon = line.find(": ");
  const size_t first = line.find(" -> ");
  const size_t second = line.find(" -> ", first + 4);
  const std::string head = line.substr(0, colon);
  const std::string bytes = line.substr(first + 4, second - first - 4);
  const size_t open = head.find('(');
  const size_t bar = bytes.find('|');
  Example example;
  example.line = line;
  example.name = head.substr(0, open);
  if (open != std::string::npos) {
    example.parameter = head.substr(open + 1, head.size() - open - 2);
  }
  example.values = Numbers(line.substr(colon + 2, first - colon - 2));
  example.data = Bytes(bytes.substr(0, bar));
  if (bar != std::string::npos) example.scale = Bytes(bytes.substr(bar + 1));
  example.back = Numbers(line.substr(second + 4));
  return example;
}

std::vector<Example> DocumentedExamples() {
  std::ifstream file(SourcePath("docs/formats.md"));
  std::vector<Example> examples;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("```", 0) == 0) {
      inside = line == "```example";
    } else if (inside) {
      examples.push_back(Parse(line));
    }
  }
  return examples;
}

void CheckNumbers(const Example& example, DataType type) {
  const int64_t n = static_cast<int64_t>(example.values.size());
  std::vector<uint8_t> data(PackedBytes(n, BitWidth(type)));
  ASSERT_TRUE(EncodeFromFloat(type, example.values.data(), n, data.data()).ok());
  EXPECT_EQ(data, example.data);
  std::vector<float> back(n);
  ASSERT_TRUE(DecodeToFloat(type, example.data.data(), n, back.data()).ok());
  EXPECT_EQ(back, example.back);
}

void CheckRow(const Example& example) {
  const KvQuantMode mode = Must(ParseKvQuantMode(example.name));
  CacheFormat format = *CacheFormat::Make(mode, RowFormatOf(mode).types.front());
  const int64_t n = static_cast<int64_t>(example.values.size());
  const std::vector<float> signs(n, 1.0f);
  RowParams params = {.rht_signs = signs.data()};
  if (example.parameter == "toward_zero") {
    format.int8_rounding = Int8Rounding::kTowardZero;
  } else if (!example.parameter.empty()) {
    params.tensor_scale = std::stof(example.parameter);
  }
  std::vector<uint8_t> data(format.RowBytes(n));
  std::vector<uint8_t> scale(format.ScaleBytes());
  const RowAddress row = {data.data(), scale.data()};
  EncodeRow(format, params, example.values.data(), n, row);
  EXPECT_EQ(data, example.data);
  EXPECT_EQ(scale, example.scale);
  std::vector<float> back(n);
  const float factor = DecodeRow(format, params, row, n, back.data());
  for (float& x : back) x *= factor;
  EXPECT_EQ(back, example.back);
}

// The groups that the document names.
std::optional<GroupFormat> FindGroup(const std::string& name) {
  if (name == "e4m3_ue8m0") return GroupFormat{GroupCodes::kE4M3, GroupScale::kUe8m0};
  if (name == "e4m3_power") return GroupFormat{GroupCodes::kE4M3, GroupScale::kPowerOfTwo};
  if (name == "e4m3_float") return GroupFormat{GroupCodes::kE4M3, GroupScale::kFloat, kDsMlaFloor};
  if (name == "e2m1_ue8m0") return GroupFormat{GroupCodes::kE2M1, GroupScale::kUe8m0, kMxfp4Floor};
  return std::nullopt;
}

void CheckGroup(const Example& example, const GroupFormat& format) {
  const int64_t n = static_cast<int64_t>(example.values.size());
  std::vector<uint8_t> codes(format.CodeBytes(n));
  std::vector<uint8_t> scale(format.ScaleBytes());
  StoreGroupScale(format.scale, EncodeGroup(format, example.values.data(), n, codes.data()),
                  scale.data());
  EXPECT_EQ(codes, example.data);
  EXPECT_EQ(scale, example.scale);
  std::vector<float> back(n);
  DecodeGroup(format.codes, codes.data(), LoadGroupScale(format.scale, scale.data()), n,
              back.data());
  EXPECT_EQ(back, example.back);
}

TEST(FormatsDocument, ItsExamplesHold) {
  const std::vector<Example> examples = DocumentedExamples();
  EXPECT_EQ(examples.size(), 22u);
  for (const Example& example : examples) {
    SCOPED_TRACE(example.line);
    const std::optional<DataType> type = DataTypeFromName(example.name);
    if (type) {
      CheckNumbers(example, *type);
    } else if (const auto group = FindGroup(example.name)) {
      CheckGroup(example, *group);
    } else {
      CheckRow(example);
    }
  }
}

}  // namespace
}  // namespace pagefuse
