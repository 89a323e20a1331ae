// SPDX-License-Identifier: Apache-2.0
// Reads prompts from the command line and from files: token ids, or text of byte vocabularies.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/runtime/model_config.h"

namespace pagefuse::tools {

// Numbers with commas or blanks between them. InvalidArgument where there is none at all, or none on a
// side of a comma.
absl::StatusOr<std::vector<int64_t>> ParseIds(const std::string& text);
// The same, or what the file holds that is called behind an @: a command line holds no long prompts.
absl::StatusOr<std::vector<int64_t>> ReadIds(const std::string& text);

// A token is a byte, with the beginning-of-sequence token in front.
std::vector<int64_t> EncodeBytes(const std::string& text, std::optional<int64_t> begin);

// A file of prompts, one a line: ids with commas, or text of a byte vocabulary. InvalidArgument if
// there is none.
absl::StatusOr<std::vector<std::vector<int64_t>>> ReadPrompts(const std::string& path,
                                                              const ModelConfig& config,
                                                              int64_t vocabulary);

}  // namespace pagefuse::tools
