// SPDX-License-Identifier: Apache-2.0
// Domains of ops, the options of a session that they are added to, and the log.
#include <cstdio>
#include <memory>

#include "pagefuse/plugin/custom_ops/answers.h"
#include "pagefuse/plugin/custom_ops/table.h"

namespace pagefuse::ort {
namespace {

Status* CreateDomain(const char* name, CustomOpDomain** domain) {
  *domain = new CustomOpDomain{std::make_shared<DomainRows>(DomainRows{name, {}})};
  return nullptr;
}

Status* AddOp(CustomOpDomain* domain, const CustomOp* op) {
  domain->rows->rows.push_back(op);
  return nullptr;
}

Status* AddDomain(SessionOptions* options, CustomOpDomain* domain) {
  options->domains.push_back(domain->rows);
  return nullptr;
}

Status* HasEntry(const SessionOptions* options, const char* key, int* is_there) {
  *is_there = options->config.count(key) > 0 ? 1 : 0;
  return nullptr;
}

Status* GetEntry(const SessionOptions* options, const char* key, char* value, size_t* size) {
  const auto entry = options->config.find(key);
  if (entry != options->config.end()) return GiveText(entry->second, value, size);
  return Refuse(ErrorCode::kInvalidArgument,
                std::string("there is no entry \"") + key + "\" in the configuration");
}

// NOLINTNEXTLINE(readability-function-size): as the C API has it.
Status* Log(const Logger* logger, LoggingLevel level, const char* message, const char* /*file*/,
            int /*line*/, const char* /*function*/) {
  if (level < LoggingLevel::kWarning) return nullptr;
  const char* kind = level == LoggingLevel::kWarning ? "warning" : "error";
  std::fprintf(stderr, "%s: %s: %s\n", logger->library.c_str(), kind, message);
  return nullptr;
}

Status* LogLevel(const Logger* /*logger*/, LoggingLevel* level) {
  *level = LoggingLevel::kWarning;
  return nullptr;
}

}  // namespace

void FillRegistration(const TableFiller& table) {
  table.Set(kCreateCustomOpDomain, CreateDomain);
  table.Set(kCustomOpDomainAdd, AddOp);
  table.Set(kAddCustomOpDomain, AddDomain);
  table.Set(kReleaseCustomOpDomain, Release<CustomOpDomain>);
  table.Set(kHasSessionConfigEntry, HasEntry);
  table.Set(kGetSessionConfigEntry, GetEntry);
  table.Set(kLoggerLogMessage, Log);
  table.Set(kLoggerGetLoggingSeverityLevel, LogLevel);
}

}  // namespace pagefuse::ort
