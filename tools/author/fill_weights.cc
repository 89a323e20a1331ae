// SPDX-License-Identifier: Apache-2.0
// Makes a runnable model of a structure-only graph: random weights for every external initialiser.
//
//   fill_weights DIR OUT
//
// DIR holds model.onnx and initializers.json (and config.json where there are expert tables). OUT
// gets a copy of model.onnx and the data file. Floating-point matrices are normal with standard
// deviation 1 / sqrt(fan-in), vectors 1 + normal / 50, integers below the number of experts. The
// same input gives the same bytes on every machine.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"

namespace pagefuse {
namespace {

using Json = nlohmann::json;

constexpr int64_t kChunkBytes = int64_t{4} << 20;
constexpr int kTableBits = 16;

// The quantile function of the normal distribution at (i + 1/2) / 65536: a table look-up with 16
// random bits draws from it. Newton's method on the distribution function, from the quantile
// before.
std::vector<float> MakeNormalTable() {
  constexpr int kSize = 1 << kTableBits;
  std::vector<float> table(kSize);
  double z = -4.5;
  for (int i = 0; i < kSize / 2; ++i) {
    const double target = (i + 0.5) / kSize;
    for (int step = 0; step < 50; ++step) {
      const double density = std::exp(-0.5 * z * z) / std::sqrt(2.0 * M_PI);
      const double change = (0.5 * std::erfc(-z / std::sqrt(2.0)) - target) / density;
      z -= std::clamp(change, -0.5, 0.5);
      if (std::abs(change) < 1e-12) break;
    }
    table[i] = static_cast<float>(z);
    table[kSize - 1 - i] = static_cast<float>(-z);
  }
  return table;
}

// SplitMix64 of a counter: any part of the stream can be made on its own.
uint64_t RandomBits(uint64_t seed, uint64_t counter) {
  uint64_t x = seed + (counter + 1) * 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

struct Initializer {
  std::string name;
  std::vector<int64_t> shape;
  std::string dtype;
  int64_t bytes = 0;
  int64_t offset = 0;
  uint64_t seed = 0;
};

// Parameters that kept their checkpoint name ("....weight") have its order, [out, in]; the others
// were transposed to [in, out].
float StandardDeviation(const Initializer& init) {
  const size_t rank = init.shape.size();
  const bool checkpoint_order = init.name.ends_with(".weight");
  const int64_t fan_in = checkpoint_order ? init.shape[rank - 1] : init.shape[rank - 2];
  return 1.0f / std::sqrt(static_cast<float>(std::max<int64_t>(fan_in, 1)));
}

class Filler {
 public:
  Filler(int64_t experts, int file) : experts_(experts), file_(file), table_(MakeNormalTable()) {}

  absl::Status Fill(const Initializer& init) const {
    const bool is_float = init.dtype == "FLOAT";
    if (!is_float && init.dtype != "INT64") {
      return absl::UnimplementedError(
          absl::StrCat("initializer \"", init.name, "\": type ", init.dtype));
    }
    if (!is_float && experts_ <= 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("initializer \"", init.name, "\": config.json has no n_routed_experts"));
    }
    std::atomic<bool> ok = true;
    ParallelTasks((init.bytes + kChunkBytes - 1) / kChunkBytes, [&](int64_t task) {
      const int64_t start = task * kChunkBytes;
      std::vector<char> chunk(std::min(kChunkBytes, init.bytes - start));
      if (is_float) {
        MakeFloats(init, start / sizeof(float), chunk);
      } else {
        MakeIntegers(init, start / sizeof(int64_t), chunk);
      }
      if (!Write(chunk, init.offset + start)) ok = false;
    });
    return ok ? absl::OkStatus() : absl::InternalError("cannot write the data file");
  }

 private:
  // Four values from each 64 random bits.
  void MakeFloats(const Initializer& init, int64_t first, std::vector<char>& chunk) const {
    const bool vector = init.shape.size() < 2;
    const float scale = vector ? 0.02f : StandardDeviation(init);
    const float mean = vector ? 1.0f : 0.0f;
    float* out = reinterpret_cast<float*>(chunk.data());
    const int64_t count = static_cast<int64_t>(chunk.size() / sizeof(float));
    for (int64_t i = 0; i < count; i += 4) {
      uint64_t bits = RandomBits(init.seed, (first + i) / 4);
      for (int64_t j = i; j < std::min(i + 4, count); ++j, bits >>= kTableBits) {
        out[j] = mean + scale * table_[bits & ((1 << kTableBits) - 1)];
      }
    }
  }

  void MakeIntegers(const Initializer& init, int64_t first, std::vector<char>& chunk) const {
    int64_t* out = reinterpret_cast<int64_t*>(chunk.data());
    const int64_t count = static_cast<int64_t>(chunk.size() / sizeof(int64_t));
    for (int64_t i = 0; i < count; ++i) {
      out[i] = static_cast<int64_t>(RandomBits(init.seed, first + i) % experts_);
    }
  }

  bool Write(const std::vector<char>& chunk, int64_t offset) const {
    size_t done = 0;
    while (done < chunk.size()) {
      const ssize_t written =
          pwrite(file_, chunk.data() + done, chunk.size() - done, offset + done);
      if (written <= 0) return false;
      done += written;
    }
    return true;
  }

  int64_t experts_;
  int file_;
  std::vector<float> table_;
};

absl::StatusOr<Json> ReadJson(const std::filesystem::path& path) {
  std::ifstream in(path);
  if (!in) return absl::NotFoundError(absl::StrCat("cannot read \"", path.string(), "\""));
  Json json = Json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat("\"", path.string(), "\" is not a JSON object"));
  }
  return json;
}

int64_t ElementBytes(const std::string& dtype) { return dtype == "INT64" ? 8 : 4; }

// The external initialisers. InvalidArgument if an entry has not the fields it needs, or they
// contradict each other.
absl::StatusOr<std::vector<Initializer>> ReadInitializers(const Json& json) {
  const int64_t total = json.value("data_bytes", int64_t{-1});
  const auto list = json.find("initializers");
  if (total < 0 || list == json.end() || !list->is_array()) {
    return absl::InvalidArgumentError("initializers.json: no data_bytes or initializers");
  }
  std::vector<Initializer> result;
  for (const Json& entry : *list) {
    if (!entry.is_object() || !entry.contains("name") || !entry.contains("shape")) {
      return absl::InvalidArgumentError("initializers.json: an entry has no name or shape");
    }
    if (entry.value("inline", true)) continue;
    Initializer init{entry["name"].get<std::string>(),   entry["shape"].get<std::vector<int64_t>>(),
                     entry.value("dtype", ""),           entry.value("bytes", int64_t{-1}),
                     entry.value("offset", int64_t{-1}), 0};
    int64_t size = ElementBytes(init.dtype);
    for (int64_t dim : init.shape) size *= dim;
    if (init.offset < 0 || init.bytes != size || init.offset > total - init.bytes) {
      return absl::InvalidArgumentError(absl::StrCat("initializers.json: \"", init.name,
                                                     "\" does not fit its bytes or the file"));
    }
    init.seed = RandomBits(result.size(), init.bytes);
    result.push_back(std::move(init));
  }
  return result;
}

absl::Status Run(const std::filesystem::path& from, const std::filesystem::path& to) {
  PF_ASSIGN_OR_RETURN(const Json json, ReadJson(from / "initializers.json"));
  PF_ASSIGN_OR_RETURN(const std::vector<Initializer> initializers, ReadInitializers(json));
  int64_t experts = 0;
  const absl::StatusOr<Json> config = ReadJson(from / "config.json");
  if (config.ok()) experts = config->value("n_routed_experts", int64_t{0});

  std::error_code error;
  std::filesystem::create_directories(to, error);
  std::filesystem::copy_file(from / "model.onnx", to / "model.onnx",
                             std::filesystem::copy_options::overwrite_existing, error);
  if (error) {
    return absl::NotFoundError(absl::StrCat("cannot copy model.onnx: ", error.message()));
  }
  const std::string data = to / json.value("data_file", "model.onnx.data");
  const int file = open(data.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0644);
  if (file < 0) return absl::NotFoundError(absl::StrCat("cannot write \"", data, "\""));
  absl::Status status = absl::OkStatus();
  if (ftruncate(file, json["data_bytes"].get<int64_t>()) != 0) {
    status = absl::ResourceExhaustedError(absl::StrCat("cannot extend \"", data, "\""));
  }
  const Filler filler(experts, file);
  for (size_t i = 0; i < initializers.size() && status.ok(); ++i) {
    status = filler.Fill(initializers[i]);
  }
  if (close(file) != 0 && status.ok()) status = absl::InternalError("cannot write the data file");
  return status;
}

}  // namespace
}  // namespace pagefuse

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: fill_weights DIR OUT\n";
    return 1;
  }
  const absl::Status status = pagefuse::Run(argv[1], argv[2]);
  if (status.ok()) return 0;
  std::cerr << "fill_weights: " << status.message() << "\n";
  return 1;
}
