// SPDX-License-Identifier: Apache-2.0
#include "decoder_feeds.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse::fuzz {
namespace {

const Value* IdsOf(const DecoderCase& decoder) {
  for (const Value* input : decoder.model.graph->inputs()) {
    if (decoder.feeds.at(input->name()) == FeedRole::kIds) return input;
  }
  return nullptr;
}

absl::StatusOr<Tensor> TensorOf(DataType dtype, std::vector<int64_t> dims,
                                const std::vector<int64_t>& numbers) {
  switch (dtype) {
    case DataType::kInt64:
      return Tensor::Of<int64_t>(std::move(dims), numbers);
    case DataType::kInt32:
      return Tensor::Of<int32_t>(std::move(dims), {numbers.begin(), numbers.end()});
    case DataType::kFloat:
      return Tensor::Of<float>(std::move(dims), {numbers.begin(), numbers.end()});
    case DataType::kBool: {
      PF_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(dtype, std::move(dims)));
      std::copy(numbers.begin(), numbers.end(), tensor.mutable_values<bool>().begin());
      return tensor;
    }
    default:
      return absl::UnimplementedError("no feed of this type");
  }
}

Tensor RandomFloats(std::vector<int64_t> dims, Random& random) {
  const int64_t count = ElementCount(dims).value_or(0);
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<float>(random.Below(2000)) / 1000 - 1);
  }
  return Tensor::Of<float>(std::move(dims), values);
}

std::vector<int64_t> RandomNumbers(int64_t count, size_t below, Random& random) {
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < count; ++i) numbers.push_back(static_cast<int64_t>(random.Below(below)));
  return numbers;
}

// Keys and values by head, [B, K, P, D], or in another form: rows that all heads share [B, P, D],
// say. Its first axis is that of sequences.
std::vector<int64_t> PastDims(const Shape& shape, const StepSizes& sizes) {
  if (shape.rank() == 4) {
    return {sizes.batch, shape[1].constant().value_or(1), sizes.past,
            shape[3].constant().value_or(1)};
  }
  std::vector<int64_t> dims;
  for (const Dim& dim : shape.dims()) dims.push_back(dim.constant().value_or(sizes.past));
  if (!dims.empty()) dims[0] = sizes.batch;
  return dims;
}

// The axes of a role before any is made 1.
std::vector<int64_t> RoleDims(const Value& input, FeedRole role, const StepSizes& sizes) {
  switch (role) {
    case FeedRole::kScale:
      return {};
    case FeedRole::kMask4:
      return {sizes.batch, 1, sizes.length, sizes.past + sizes.length};
    case FeedRole::kMask:
      return {sizes.batch, sizes.past + sizes.length};
    case FeedRole::kPast:
      return PastDims(*input.shape(), sizes);
    default:
      return {sizes.batch, sizes.length};
  }
}

// 0 where the key is visible.
Tensor CausalMask(const StepSizes& sizes) {
  const int64_t total = sizes.past + sizes.length;
  std::vector<float> mask;
  for (int64_t i = 0; i < sizes.batch * sizes.length * total; ++i) {
    const bool visible = i % total <= sizes.past + i / total % sizes.length;
    mask.push_back(visible ? 0 : std::numeric_limits<float>::lowest());
  }
  return Tensor::Of<float>({sizes.batch, 1, sizes.length, total}, mask);
}

// Axes of masks and positions that no other input shares a name with may be 1. Returns those that
// became it.
std::string Loosen(const DecoderCase& decoder, const Value& input, std::vector<int64_t>& dims,
                   Random& random) {
  std::string repeated;
  const FeedRole role = decoder.feeds.at(input.name());
  if (role != FeedRole::kMask && role != FeedRole::kPositions) return "";
  for (size_t axis = 0; axis < dims.size(); ++axis) {
    const auto symbol = (*input.shape())[static_cast<int>(axis)].symbol();
    if (!symbol || !random.OneIn(2)) continue;
    int readers = 0;
    for (const Value* other : decoder.model.graph->inputs()) {
      for (const Dim& dim : other->shape()->dims()) {
        const auto& terms = dim.terms();
        readers += static_cast<int>(std::count_if(
            terms.begin(), terms.end(), [&](const auto& term) { return term.first == *symbol; }));
      }
    }
    if (readers != 1 || dims[axis] == 1) continue;
    dims[axis] = 1;
    StrAppend(&repeated, repeated.empty() ? "" : ", ",
              role == FeedRole::kMask ? "mask " : "positions ", axis);
  }
  return repeated;
}

// Left, right or in the middle; the last token of the first sequence is always there.
std::vector<int64_t> PaddedMask(const std::vector<int64_t>& dims, Random& random) {
  std::vector<int64_t> mask(static_cast<size_t>(dims[0] * dims[1]), 1);
  const size_t kind = random.Below(3);
  for (int64_t b = 0; b < dims[0]; ++b) {
    const auto count = static_cast<int64_t>(random.Below(static_cast<size_t>(dims[1])));
    for (int64_t i = 0; i < dims[1]; ++i) {
      const bool left = i < count;
      const bool right = b > 0 && i >= dims[1] - count && i > 0;
      const bool hole = i + 1 < dims[1] && random.OneIn(3);
      const bool hidden = kind == 0 ? left : kind == 1 ? right : hole;
      if (hidden) mask[static_cast<size_t>(b * dims[1] + i)] = 0;
    }
  }
  return mask;
}

std::vector<int64_t> RandomPositions(const DecoderCase& decoder, const StepSizes& sizes,
                                     const std::vector<int64_t>& dims, Random& random) {
  constexpr size_t kPositions = 15;
  if (decoder.any_positions && random.OneIn(2)) {
    return RandomNumbers(dims[0] * dims[1], kPositions, random);
  }
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < dims[0] * dims[1]; ++i) positions.push_back(sizes.past + i % dims[1]);
  return positions;
}

}  // namespace

StepSizes DeclaredSizes(const DecoderCase& decoder, StepSizes wanted) {
  const Shape& shape = *IdsOf(decoder)->shape();
  wanted.length = shape[1].constant().value_or(wanted.length);
  wanted.batch = shape[0].constant().value_or(wanted.batch);
  if (BatchIsLength(decoder)) wanted.batch = wanted.length;
  return wanted;
}

bool BatchIsLength(const DecoderCase& decoder) {
  const Shape& shape = *IdsOf(decoder)->shape();
  return ProvablyEqual(shape[0], shape[1]);
}

absl::StatusOr<Feeds> FullForward(const DecoderCase& decoder, const std::vector<int64_t>& tokens) {
  return StepFeeds(decoder, tokens, /*first=*/0, /*pasts=*/{});
}

absl::StatusOr<Feeds> StepFeeds(const DecoderCase& decoder, const std::vector<int64_t>& tokens,
                                int64_t first, const Feeds& pasts) {
  const int64_t length = static_cast<int64_t>(tokens.size()) - first;
  const StepSizes sizes = DeclaredSizes(decoder, {.batch = 1, .length = length, .past = first});
  if (sizes.length != length) {
    return absl::FailedPreconditionError("the declared length is another");
  }
  Feeds feeds;
  for (const Value* input : decoder.model.graph->inputs()) {
    if (input->initializer()) continue;  // has a default
    const FeedRole role = decoder.feeds.at(input->name());
    const std::vector<int64_t> dims = RoleDims(*input, role, sizes);
    if (role == FeedRole::kMask4) {
      feeds[input->name()] = CausalMask(sizes);
      continue;
    }
    if (role == FeedRole::kPast) {
      const auto past = pasts.find(input->name());
      if (past != pasts.end()) {
        feeds[input->name()] = past->second;
        continue;
      }
      PF_ASSIGN_OR_RETURN(feeds[input->name()], Tensor::Allocate(input->dtype(), dims));
      continue;
    }
    std::vector<int64_t> numbers(static_cast<size_t>(ElementCount(dims).value_or(0)), 1);
    for (size_t i = 0; i < numbers.size() && !dims.empty(); ++i) {
      const int64_t place = first + static_cast<int64_t>(i) % length;
      if (role == FeedRole::kIds) numbers[i] = tokens[static_cast<size_t>(place)];
      if (role == FeedRole::kPositions) numbers[i] = place;
      if (role == FeedRole::kTypes) numbers[i] = 0;
    }
    PF_ASSIGN_OR_RETURN(feeds[input->name()], TensorOf(input->dtype(), dims, numbers));
  }
  return feeds;
}

absl::StatusOr<RandomStep> MakeStep(const DecoderCase& decoder, const StepKind& kind,
                                    Random& random) {
  const StepSizes wanted = {
      .batch = 1 + static_cast<int64_t>(random.Below(3)),
      .length = kind.one_token ? 1 : 2 + static_cast<int64_t>(random.Below(4)),
      .past = static_cast<int64_t>(random.Below(5))};
  RandomStep step{.sizes = DeclaredSizes(decoder, wanted), .feeds = {}, .kept = {}, .repeated = {}};
  const auto& roles = decoder.feeds;
  const bool has_past = std::any_of(
      roles.begin(), roles.end(), [](const auto& role) { return role.second == FeedRole::kPast; });
  if (!has_past) step.sizes.past = 0;
  for (const Value* input : decoder.model.graph->inputs()) {
    const FeedRole role = roles.at(input->name());
    std::vector<int64_t> dims = RoleDims(*input, role, step.sizes);
    if (kind.loose) {
      const std::string repeated = Loosen(decoder, *input, dims, random);
      StrAppend(&step.repeated, step.repeated.empty() || repeated.empty() ? "" : ", ", repeated);
    }
    const int64_t count = ElementCount(dims).value_or(0);
    if (role == FeedRole::kMask4) {
      step.feeds[input->name()] = CausalMask(step.sizes);
      continue;
    }
    if (input->dtype() == DataType::kFloat && role != FeedRole::kMask) {
      step.feeds[input->name()] = RandomFloats(dims, random);
      continue;
    }
    std::vector<int64_t> numbers(static_cast<size_t>(count), 1);
    if (role == FeedRole::kIds) numbers = RandomNumbers(count, kVocabularySize, random);
    if (role == FeedRole::kTypes) numbers = RandomNumbers(count, 2, random);
    if (role == FeedRole::kPositions) numbers = RandomPositions(decoder, step.sizes, dims, random);
    const bool whole = dims == RoleDims(*input, role, step.sizes);
    if (role == FeedRole::kMask && kind.padded && decoder.padding && whole) {
      numbers = PaddedMask(dims, random);
      step.kept.assign(numbers.begin(), numbers.end());
      step.padded = true;
    }
    PF_ASSIGN_OR_RETURN(step.feeds[input->name()], TensorOf(input->dtype(), dims, numbers));
  }
  return step;
}

}  // namespace pagefuse::fuzz
