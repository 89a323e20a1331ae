// SPDX-License-Identifier: Apache-2.0
#include "text_case.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "paths.h"
#include "tools/check/expect_case.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/passes/verify/compare_models.h"

namespace pagefuse {
namespace {

using Words = std::vector<std::string>;

// What the head of a text says.
struct Head {
  std::map<std::string, int> fuses;
  std::map<std::string, int64_t> sizes;
  std::map<std::string, Words> feeds;
  std::set<std::string> codes;  // outputs
};

Words WordsOf(absl::string_view text) {
  return absl::StrSplit(text, absl::ByAnyChar(" ,"), absl::SkipEmpty());
}

int64_t NumberOf(const std::string& word) {
  int64_t number = 0;
  return absl::SimpleAtoi(word, &number) ? number : -1;
}

Head HeadOf(const std::string& text) {
  Head head;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (line.empty() || line[0] != '#') break;
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(absl::StripPrefix(line, "# "), absl::MaxSplits(": ", 1));
    const Words name = WordsOf(parts.first), words = WordsOf(parts.second);
    if (name.empty() || words.empty()) continue;
    if (name[0] == "fuses") {
      for (size_t i = 0; i + 1 < words.size(); i += 2) {
        head.fuses[words[i]] = static_cast<int>(NumberOf(words[i + 1]));
      }
    }
    if (name.size() != 2) continue;
    if (name[0] == "size") head.sizes[name[1]] = NumberOf(words[0]);
    if (name[0] == "feed") head.feeds[name[1]] = words;
    if (name[0] == "compare" && words[0] == "codes") head.codes.insert(name[1]);
  }
  return head;
}

// --- feeds ---

class Feeder {
 public:
  Feeder(const Head& head, uint32_t seed) : head_(head), random_(seed) {}

  absl::StatusOr<Tensor> Make(const Value& input) {
    std::vector<int64_t> dims;
    for (const Dim& dim : input.shape()->dims()) {
      const auto number = dim.constant();
      const auto named = head_.sizes.find(dim.ToString());
      if (!number && named == head_.sizes.end()) {
        return absl::InvalidArgumentError(StrCat("no size is said of ", dim.ToString()));
      }
      dims.push_back(number ? *number : named->second);
    }
    PF_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(input.dtype(), dims));
    const auto said = head_.feeds.find(input.name());
    const Words words = said == head_.feeds.end() ? Words() : said->second;
    PF_RETURN_IF_ERROR(Fill(words, tensor));
    return tensor;
  }

 private:
  absl::Status Fill(const Words& words, Tensor& tensor) {
    const DataType type = tensor.dtype();
    if (type == DataType::kInt64 || type == DataType::kInt32) return FillIntegers(words, tensor);
    if (type == DataType::kBool) {
      for (bool& x : tensor.mutable_values<bool>()) x = Below(4) > 0;
      return absl::OkStatus();
    }
    if (IsFloatingPoint(type) && type != DataType::kFloat8E4M3FN) {
      return FillFloats(words, tensor);
    }
    FillBytes(words, tensor);
    return absl::OkStatus();
  }

  absl::Status FillIntegers(const Words& words, Tensor& tensor) {
    std::vector<int64_t> numbers(tensor.size());
    const std::string how = words.empty() ? "" : words[0];
    if (how == "distinct") {
      std::vector<int64_t> all(NumberOf(words[1]));
      std::iota(all.begin(), all.end(), 0);
      std::shuffle(all.begin(), all.end(), random_);
      std::copy_n(all.begin(), tensor.size(), numbers.begin());
    } else if (how == "range") {
      for (int64_t& number : numbers) number = NumberOf(words[1]) + Below(NumberOf(words[2]));
    } else if (how == "ints" && words.size() == numbers.size() + 1) {
      for (size_t i = 0; i < numbers.size(); ++i) {
        if (!absl::SimpleAtoi(words[i + 1], &numbers[i])) numbers[i] = 0;
      }
    } else {
      return absl::InvalidArgumentError("integers are not said, or not as many");
    }
    if (tensor.dtype() == DataType::kInt64) {
      std::ranges::copy(numbers, tensor.mutable_values<int64_t>().begin());
    } else {
      std::ranges::copy(numbers, tensor.mutable_values<int32_t>().begin());
    }
    return absl::OkStatus();
  }

  absl::Status FillFloats(const Words& words, Tensor& tensor) {
    std::vector<float> numbers(tensor.size());
    for (float& number : numbers) number = Normal();
    if (!words.empty() && words[0] == "positive") {
      double about = 1;
      (void)absl::SimpleAtod(words[1], &about);
      for (float& number : numbers) {
        number = static_cast<float>(about) * (1 + std::abs(number) / 2);
      }
    }
    if (!words.empty() && words[0] == "ascending") std::ranges::sort(numbers);
    return EncodeFromFloat(tensor.dtype(), numbers.data(), tensor.size(), tensor.mutable_data());
  }

  // Bytes of codes, none of them a NaN of e4m3fn, and the numbers that stand among them.
  void FillBytes(const Words& words, Tensor& tensor) {
    auto* bytes = static_cast<uint8_t*>(tensor.mutable_data());
    const int64_t size = tensor.size();
    constexpr int kFinite = 0x77, kSign = 0x80;
    for (int64_t i = 0; i < size; ++i) {
      bytes[i] = static_cast<uint8_t>((Below(256) & kFinite) | (Below(2) ? kSign : 0));
    }
    if (words.empty()) return;
    const int64_t row = NumberOf(words[0]);
    for (int64_t start = 0; start + row <= size; start += row) {
      for (size_t i = 1; i + 2 < words.size(); i += 3) {
        PutNumbers(bytes + start, words[i], NumberOf(words[i + 1]), NumberOf(words[i + 2]));
      }
    }
  }

  // `type begin end`: from byte `begin` to `end` of a row.
  void PutNumbers(uint8_t* row, const std::string& type, int64_t begin, int64_t end) {
    const DataType as = type == "float16"    ? DataType::kFloat16
                        : type == "bfloat16" ? DataType::kBfloat16
                                             : DataType::kFloat;
    const int64_t width = as == DataType::kFloat ? 4 : 2;
    for (int64_t at = begin; at < end; at += width) {
      const float number = (as == DataType::kBfloat16 ? 1.0f : 0.125f) * std::abs(Normal()) + 0.01f;
      (void)EncodeFromFloat(as, &number, 1, row + at);
    }
  }

  int64_t Below(int64_t limit) {
    return std::uniform_int_distribution<int64_t>(0, limit - 1)(random_);
  }
  float Normal() { return std::normal_distribution<float>()(random_); }

  const Head& head_;
  std::mt19937 random_;
};

// --- results ---

absl::Status CheckFused(const Graph& graph, const std::map<std::string, int>& fuses) {
  std::map<std::string, int> found;
  for (const auto& node : graph.nodes()) {
    if (node->domain() == "pagefuse") ++found[node->op_type()];
  }
  if (found == fuses) return absl::OkStatus();
  std::string text;
  for (const auto& [op, count] : found) StrAppend(&text, " ", op, " ", count);
  return absl::FailedPreconditionError(StrCat("got", text.empty() ? " nothing" : text));
}

// Codes that are other ones where a float met a border.
absl::Status CompareCodes(const std::string& name, const Tensor& want, const Tensor& got) {
  constexpr double kShare = 0.01;
  int64_t other = 0;
  const auto* a = static_cast<const uint8_t*>(want.data());
  const auto* b = static_cast<const uint8_t*>(got.data());
  for (int64_t i = 0; i < want.size(); ++i) {
    if (std::abs(a[i] - b[i]) > 1) {
      return absl::FailedPreconditionError(
          StrCat(name, ": element ", i, ": ", +a[i], ", got ", +b[i]));
    }
    other += a[i] != b[i] ? 1 : 0;
  }
  if (static_cast<double>(other) <= kShare * static_cast<double>(want.size())) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(StrCat(name, ": ", other, " codes are other ones"));
}

}  // namespace

std::vector<std::string> TextCases() {
  std::vector<std::string> paths;
  for (const auto& file : std::filesystem::directory_iterator(TestDataPath("other_exporters"))) {
    if (file.path().extension() == ".onnxtxt") paths.push_back(file.path().string());
  }
  std::ranges::sort(paths);
  return paths;
}

absl::StatusOr<FusionCase> LoadTextCase(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  const Head head = HeadOf(text.str());
  FusionCase result;
  result.name = std::filesystem::path(path).stem().string();
  result.group = head.fuses.empty() ? "" : head.fuses.begin()->first;
  result.options = ExpectPipeline();
  PF_ASSIGN_OR_RETURN(result.plain, ParseModel(text.str()));
  PF_RETURN_IF_ERROR(InferShapes(result.plain));
  for (uint32_t seed : {1, 2}) {
    Feeder feeder(head, seed);
    Feeds feeds;
    for (const Value* input : result.plain.graph->inputs()) {
      PF_ASSIGN_OR_RETURN(feeds[input->name()], feeder.Make(*input));
    }
    result.feeds.push_back(std::move(feeds));
  }
  result.check_fused = [fuses = head.fuses](const Graph& graph) {
    return CheckFused(graph, fuses);
  };
  std::vector<std::string> names;
  for (const Value* output : result.plain.graph->outputs()) names.push_back(output->name());
  result.compare = [names, codes = head.codes](const std::vector<Tensor>& got,
                                               const std::vector<Tensor>& want) {
    for (size_t i = 0; i < want.size(); ++i) {
      PF_RETURN_IF_ERROR(codes.contains(names[i])
                             ? CompareCodes(names[i], want[i], got[i])
                             : CompareTensors(names[i], want[i], got[i], kTolerance));
    }
    return absl::OkStatus();
  };
  return result;
}

}  // namespace pagefuse
