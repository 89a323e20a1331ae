// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ir/graph/body_domains.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "pagefuse/base/data_type.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse {

std::string BodyDomain(std::string_view base, std::string_view said_type, size_t index) {
  std::string domain(base);
  if (!said_type.empty()) StrAppend(&domain, ".", said_type);
  if (index > 0) StrAppend(&domain, ".", index + 1);
  return domain;
}

bool IsBodyDomain(std::string_view domain, std::string_view base) {
  absl::string_view rest = AbslView(domain);
  if (!absl::ConsumePrefix(&rest, AbslView(base))) return false;
  if (rest.empty()) return true;
  if (!absl::ConsumePrefix(&rest, ".")) return false;
  std::vector<absl::string_view> parts = absl::StrSplit(rest, '.');
  if (DataTypeFromName(StdView(parts[0]))) parts.erase(parts.begin());
  int index = 0;
  return parts.empty() || (parts.size() == 1 && absl::SimpleAtoi(parts[0], &index) && index > 1);
}

}  // namespace pagefuse
