// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/formats/turboquant_format.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <numbers>
#include <utility>

#include "absl/strings/str_cat.h"

#include "pagefuse/ops/kernels/formats/hadamard.h"
#include "pagefuse/ops/kernels/numeric/small_float.h"

namespace pagefuse {
namespace {

// Integrals over one cell of the quantiser by the trapezoid rule.
struct Cell {
  double mass = 0;    // of the density
  double moment = 0;  // of x times the density
};

Cell Integrate(double begin, double end, double variance) {
  constexpr int kSteps = 200;
  const double step = (end - begin) / kSteps;
  const double factor = 1 / std::sqrt(2 * std::numbers::pi * variance);
  Cell cell;
  for (int i = 0; i <= kSteps; ++i) {
    const double x = begin + i * step;
    const double weight = i == 0 || i == kSteps ? 0.5 : 1.0;
    const double density = weight * factor * std::exp(-x * x / (2 * variance));
    cell.mass += density;
    cell.moment += x * density;
  }
  return {cell.mass * step, cell.moment * step};
}

void StoreFloat16(float x, uint8_t* to) {
  const uint16_t code = EncodeFloat<Float16Format>(x);
  to[0] = static_cast<uint8_t>(code & 0xFF);
  to[1] = static_cast<uint8_t>(code >> 8);
}

float LoadFloat16(const uint8_t* from) {
  return DecodeFloat<Float16Format>(static_cast<uint16_t>(from[0] | from[1] << 8));
}

void Pack(int bits, const std::vector<uint8_t>& codes, uint8_t* to) {
  const auto count = static_cast<int64_t>(codes.size());
  if (bits == 3) {
    PackBits<3>(codes.data(), count, to);
  } else {
    PackBits<4>(codes.data(), count, to);
  }
}

std::vector<uint8_t> Unpack(int bits, const uint8_t* from, int64_t count) {
  std::vector<uint8_t> codes(count);
  if (bits == 3) {
    UnpackBits<3>(from, count, codes.data());
  } else {
    UnpackBits<4>(from, count, codes.data());
  }
  return codes;
}

}  // namespace

absl::Status CheckHeadSize(const TurboQuantFormat& format) {
  const int64_t head_size = format.head_size;
  const int64_t unit = format.key_bits == 3 || format.value_bits == 3 ? 8 : 2;
  if (head_size > 0 && head_size % unit == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("expected a head size that is a multiple of ",
                                                 unit, " for codes of ", unit == 8 ? 3 : 4,
                                                 " bits, got ", head_size));
}

std::vector<float> SolveCentroids(int64_t head_size, int bits) {
  // The cap is part of the definition: with 16 levels the iteration has not settled by then.
  constexpr int kMostRounds = 200;
  constexpr double kSettled = 1e-10;
  const int levels = 1 << bits;
  const double variance = 1.0 / static_cast<double>(head_size);
  const double high = 3.5 / std::sqrt(static_cast<double>(head_size));
  const double low = -high;
  std::vector<double> centroids(levels);
  for (int i = 0; i < levels; ++i) centroids[i] = low + (high - low) * (i + 0.5) / levels;
  for (int round = 0; round < kMostRounds; ++round) {
    std::vector<double> next(levels);
    double moved = 0;
    for (int i = 0; i < levels; ++i) {
      const double begin = i == 0 ? 3 * low : (centroids[i - 1] + centroids[i]) / 2;
      const double end = i + 1 == levels ? 3 * high : (centroids[i] + centroids[i + 1]) / 2;
      const Cell cell = Integrate(begin, end, variance);
      next[i] = cell.moment / cell.mass;
      moved = std::max(moved, std::fabs(next[i] - centroids[i]));
    }
    if (moved < kSettled) break;
    centroids = std::move(next);
  }
  return {centroids.begin(), centroids.end()};
}

std::span<const float> DefaultCentroids(int64_t head_size, int bits) {
  static std::mutex mutex;
  // Never destroyed: spans of it may outlive everything.
  static auto* known = new std::map<std::pair<int64_t, int>, std::vector<float>>();
  const std::lock_guard<std::mutex> lock(mutex);
  std::vector<float>& centroids = (*known)[{head_size, bits}];
  if (centroids.empty()) centroids = SolveCentroids(head_size, bits);
  return centroids;
}

std::vector<float> Midpoints(std::span<const float> centroids) {
  std::vector<float> midpoints;
  for (size_t i = 0; i + 1 < centroids.size(); ++i) {
    midpoints.push_back((centroids[i] + centroids[i + 1]) / 2);
  }
  return midpoints;
}

void RotateTurboQuant(const float* rotation, const float* x, int64_t head_size, float* y) {
  if (rotation == nullptr) {
    std::copy_n(x, head_size, y);
    HadamardRotate(y, head_size);
    return;
  }
  for (int64_t i = 0; i < head_size; ++i) {
    double sum = 0;
    for (int64_t j = 0; j < head_size; ++j) {
      sum += static_cast<double>(rotation[i * head_size + j]) * x[j];
    }
    y[i] = static_cast<float>(sum);
  }
}

void EncodeTurboQuantKey(const TurboQuantFormat& format, const TurboQuantTables& tables,
                         const float* key, uint8_t* slot) {
  const int64_t size = format.head_size;
  if (!format.has_centroids()) {
    for (int64_t d = 0; d < size; ++d) slot[d] = EncodeFloat<E4M3FNFormat>(key[d]);
    return;
  }
  // Summed in double, so that every order of the sum gives the same norm.
  double squares = 0;
  for (int64_t d = 0; d < size; ++d) squares += static_cast<double>(key[d]) * key[d];
  const float norm = std::sqrt(static_cast<float>(squares));
  std::vector<float> x(size);
  std::vector<float> y(size);
  for (int64_t d = 0; d < size; ++d) x[d] = key[d] / (norm + kTurboQuantNormFloor);
  RotateTurboQuant(tables.rotation, x.data(), size, y.data());
  const std::vector<float> midpoints =
      Midpoints({tables.centroids, static_cast<size_t>(format.NumCentroids())});
  std::vector<uint8_t> codes(size, 0);
  for (int64_t d = 0; d < size; ++d) {
    for (const float m : midpoints) codes[d] = static_cast<uint8_t>(codes[d] + (y[d] >= m ? 1 : 0));
  }
  Pack(format.key_bits, codes, slot);
  StoreFloat16(norm, slot + format.KeyDataBytes());
}

void EncodeTurboQuantValue(const TurboQuantFormat& format, const float* value, uint8_t* slot) {
  const int64_t size = format.head_size;
  const auto most = static_cast<float>((1 << format.value_bits) - 1);
  float low = value[0];
  float high = value[0];
  for (int64_t d = 1; d < size; ++d) {
    low = std::min(low, value[d]);
    high = std::max(high, value[d]);
  }
  float scale = (high - low) / most;
  if (!(scale > kTurboQuantScaleFloor)) scale = kTurboQuantScaleFloor;
  std::vector<uint8_t> codes(size);
  for (int64_t d = 0; d < size; ++d) {
    const float place = (value[d] - low) / scale + 0.5f;
    const float clamped = place > 0 ? std::min(place, most) : 0.0f;  // 0 for NaN too
    codes[d] = static_cast<uint8_t>(clamped);
  }
  uint8_t* to = slot + format.KeyBytes();
  Pack(format.value_bits, codes, to);
  StoreFloat16(scale, to + format.ValueDataBytes());
  StoreFloat16(low, to + format.ValueDataBytes() + 2);
}

float DecodeTurboQuantKey(const TurboQuantFormat& format, const float* centroids,
                          bool norm_correction, const uint8_t* slot, float* codes) {
  const int64_t size = format.head_size;
  if (!format.has_centroids()) {
    for (int64_t d = 0; d < size; ++d) codes[d] = DecodeFloat<E4M3FNFormat>(slot[d]);
    return 1;
  }
  const std::vector<uint8_t> indices = Unpack(format.key_bits, slot, size);
  for (int64_t d = 0; d < size; ++d) codes[d] = centroids[indices[d]];
  if (norm_correction) {
    double squares = 0;
    for (int64_t d = 0; d < size; ++d) squares += static_cast<double>(codes[d]) * codes[d];
    const float length = std::sqrt(static_cast<float>(squares) + kTurboQuantSquareFloor);
    for (int64_t d = 0; d < size; ++d) codes[d] /= length;
  }
  return LoadFloat16(slot + format.KeyDataBytes());
}

void DecodeTurboQuantValue(const TurboQuantFormat& format, const uint8_t* slot, float* value) {
  const uint8_t* from = slot + format.KeyBytes();
  const std::vector<uint8_t> codes = Unpack(format.value_bits, from, format.head_size);
  const float scale = LoadFloat16(from + format.ValueDataBytes());
  const float zero = LoadFloat16(from + format.ValueDataBytes() + 2);
  // The product has 15 bits: exact.
  for (int64_t d = 0; d < format.head_size; ++d) {
    value[d] = static_cast<float>(codes[d]) * scale + zero;
  }
}

}  // namespace pagefuse
