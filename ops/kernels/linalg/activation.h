// Activations of gated products.
#pragma once

#include <cstdint>
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

// out[i] = activation(gate[i]) * up[i] for i in [0, n); `out` may be `gate` or `up`. Error of the
// activation at most a few units in the last place of float32 where the result is normal.
void GatedProduct(Activation activation, const float* gate, const float* up, int64_t n, float* out);

}  // namespace pagefuse
