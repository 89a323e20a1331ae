// SPDX-License-Identifier: Apache-2.0
// Activations of gated products.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

namespace pagefuse {

enum class Activation {
  kGelu,      // x * (1 + erf(x / sqrt 2)) / 2
  kGeluTanh,  // x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2
  kSilu,      // x / (1 + exp(-x))
};

// "gelu", "gelu_tanh", "silu"; nullopt for any other name.
std::optional<Activation> ActivationFromName(std::string_view name);

// activation(x) in double precision, the definition.
double ApplyActivation(Activation activation, double x);

// What joins both products: activation(gate) * up, both cut off at a limit first.
struct Gate {
  static constexpr float kNoLimit = std::numeric_limits<float>::infinity();

  // NOLINTNEXTLINE(google-explicit-constructor): an activation alone is a gate without a limit.
  Gate(Activation with, float at_most = kNoLimit) : activation(with), limit(at_most) {}

  Activation activation;
  float limit;  // gate <= limit, -limit <= up <= limit
};

// In double precision, the definition.
double ApplyGate(const Gate& gate, double x, double up);

// out[i] = activation(gate[i]) * up[i] for i in [0, n), cut off first; `out` may be `gate` or `up`.
// Error of the activation at most a few units in the last place of float32 where the result is
// normal.
void GatedProduct(const Gate& by, const float* gate, const float* up, int64_t n, float* out);

}  // namespace pagefuse
