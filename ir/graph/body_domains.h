// SPDX-License-Identifier: Apache-2.0
// Domains in which a file for other runtimes calls what they do not know.
//
// Such a file has a model-local function for every body of a fused op (passes/lower/). A runtime
// finds a body by domain and name alone, so an op with several bodies has them in several domains:
// `pagefuse`, `pagefuse.2`, `pagefuse.3`. Ops of ai.onnx that are newer than the file's opset are
// called in `pagefuse.onnx` (and `pagefuse.onnx.2`), where a body says what they mean. Import reads
// such a file as it was before (written_bodies.h).
//
// A runtime that has the ops in a library chooses the types of outputs by those of the inputs. Where
// an attribute says that an output is something else, its type is part of the domain:
// `pagefuse.float16`, `pagefuse.float16.2`.
#pragma once

#include <string>
#include <string_view>

namespace pagefuse {

// Metadata of the model: the opset of ai.onnx that its graph was in before it was written for
// others. What has it was written here.
inline constexpr std::string_view kWrittenFromOpset = "pagefuse.written_from_opset";

// Metadata: names of values, a line each, that are float8 and are declared as bytes.
inline constexpr std::string_view kFloat8Values = "pagefuse.float8_values";

// Metadata: other domains, those of plug-ins, whose ops have bodies in the file, a line each. Who has
// the plug-in restores their calls (passes/lower/lower.h); for others the functions stay.
inline constexpr std::string_view kBodyDomains = "pagefuse.body_domains";

inline constexpr std::string_view kFusedDomain = "pagefuse";
inline constexpr std::string_view kNewerOpsDomain = "pagefuse.onnx";

// Bodies an op may have in a domain.
inline constexpr int kMaxBodies = 8;

// Where the body of that index (from 0) is. `base`: one of the two above; `said_type`: TypeRow.
std::string BodyDomain(std::string_view base, std::string_view said_type, size_t index);
// True if BodyDomain gives `domain` for `base`.
bool IsBodyDomain(std::string_view domain, std::string_view base);

}  // namespace pagefuse
