// SPDX-License-Identifier: Apache-2.0
// Makes a failing model small.
#pragma once

#include <functional>
#include <string>

namespace pagefuse::fuzz {

// Takes nodes, inputs, tensors, attributes and the rest out of a model as long as `fails` says that
// what is left still fails. Bytes that are no model come back as they are.
std::string Minimise(std::string bytes, const std::function<bool(const std::string&)>& fails);

}  // namespace pagefuse::fuzz
