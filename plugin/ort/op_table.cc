// SPDX-License-Identifier: Apache-2.0
#include "plugin/ort/op_table.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <mutex>
#include <string_view>

#include "plugin/ort/ort_status.h"

#include "pagefuse/ir/graph/body_domains.h"
#include "pagefuse/ops/registry/registry.h"

namespace pagefuse::ort {
namespace {

// Files are written for opsets from this on: ops of ai.onnx that are newer are calls.
constexpr int kOldestWrittenOpset = 21;
// Ops of ONNX Runtime's own domain that it computes on other devices alone. Never one that it
// computes on the CPU: ours would stand before it.
constexpr std::string_view kMicrosoftDomain = "com.microsoft";
constexpr std::string_view kMicrosoftOps[] = {"PagedAttention"};
// Release 1.20 ends the program where a function for shapes is set and a node omits an input.
constexpr int kFirstMinorWithShapes = 24;

// 24 of "1.24.3".
int MinorVersion(const char* version) {
  char* end = nullptr;
  const long major = std::strtol(version, &end, 10);
  if (major > 1) return kFirstMinorWithShapes;
  return *end == '.' ? static_cast<int>(std::strtol(end + 1, nullptr, 10)) : 0;
}

bool IsMicrosoftOp(const OpDef& op) {
  return op.domain() == kMicrosoftDomain &&
         std::count(std::begin(kMicrosoftOps), std::end(kMicrosoftOps), op.name()) > 0;
}

}  // namespace

absl::Status OpTable::AddRow(const OpDef& op, const TypeRow& types, const std::string& domain) {
  const auto [entry, is_new] = domains_.try_emplace(domain, nullptr);
  if (is_new) {
    PF_RETURN_IF_ERROR(
        FromOrtStatus(api_, kCreateCustomOpDomain(api_, domain.c_str(), &entry->second)));
  }
  const OpRow& row = rows_.emplace_back(api_, op, types, settings_, infers_shapes_);
  return FromOrtStatus(api_, kCustomOpDomainAdd(api_, entry->second, &row));
}

// Every body of an op may be called, so the op is in every domain that bodies are in.
absl::Status OpTable::AddOp(const OpDef& op, const std::string& base) {
  PF_ASSIGN_OR_RETURN(const std::vector<TypeRow> rows, TypeRows(op));
  for (size_t body = 0; body < kMaxBodies; ++body) {
    for (const TypeRow& row : rows) {
      PF_RETURN_IF_ERROR(AddRow(op, row, BodyDomain(base, row.said_type, body)));
    }
  }
  return absl::OkStatus();
}

absl::Status OpTable::AddMicrosoftOp(const OpDef& op) {
  PF_ASSIGN_OR_RETURN(const std::vector<TypeRow> rows, TypeRows(op));
  for (const TypeRow& row : rows) PF_RETURN_IF_ERROR(AddRow(op, row, op.domain()));
  return absl::OkStatus();
}

absl::Status OpTable::Fill() {
  for (const OpDef* op : OpRegistry::Global().ops()) {
    // Ops with graphs among their attributes are written out as nodes.
    if (op->bodies() != nullptr) continue;
    if (op->domain() == kFusedDomain) {
      PF_RETURN_IF_ERROR(AddOp(*op, std::string(kFusedDomain)));
    } else if (op->domain().empty() && op->since() > kOldestWrittenOpset &&
               op->has_decomposition()) {
      PF_RETURN_IF_ERROR(AddOp(*op, std::string(kNewerOpsDomain)));
    } else if (settings_.microsoft_ops && IsMicrosoftOp(*op)) {
      PF_RETURN_IF_ERROR(AddMicrosoftOp(*op));
    }
  }
  return absl::OkStatus();
}

absl::Status OpTable::AddTo(Api* api, const char* host_version, SessionOptions* options) {
  static std::mutex mutex;
  static auto* const tables = new std::map<std::pair<Api*, Settings>, std::unique_ptr<OpTable>>;
  PF_ASSIGN_OR_RETURN(const Settings settings, ReadSettings(api, options));
  const std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<OpTable>& table = (*tables)[{api, settings}];
  if (table == nullptr) {
    auto made = std::unique_ptr<OpTable>(
        new OpTable(api, settings, MinorVersion(host_version) >= kFirstMinorWithShapes));
    PF_RETURN_IF_ERROR(made->Fill());
    table = std::move(made);
  }
  for (const auto& [name, domain] : table->domains_) {
    PF_RETURN_IF_ERROR(FromOrtStatus(api, kAddCustomOpDomain(api, options, domain)));
  }
  return absl::OkStatus();
}

}  // namespace pagefuse::ort
