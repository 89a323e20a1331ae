// SPDX-License-Identifier: Apache-2.0
// Early return for absl::Status and absl::StatusOr, and the check of our own invariants.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns the status of `expr` from the enclosing function unless it is OK.
#define PF_RETURN_IF_ERROR(expr)           \
  do {                                     \
    ::absl::Status pf_status = (expr);     \
    if (!pf_status.ok()) return pf_status; \
  } while (false)

// PF_ASSIGN_OR_RETURN(auto x, F()) declares x from F()'s value, or returns F()'s status.
#define PF_ASSIGN_OR_RETURN(lhs, expr) \
  PF_ASSIGN_OR_RETURN_IMPL_(PF_CONCAT_(pf_status_or_, __LINE__), lhs, expr)
#define PF_ASSIGN_OR_RETURN_IMPL_(tmp, lhs, expr) \
  auto tmp = (expr);                              \
  if (!tmp.ok()) return std::move(tmp).status();  \
  lhs = *std::move(tmp)
#define PF_CONCAT_(a, b) PF_CONCAT_IMPL_(a, b)
#define PF_CONCAT_IMPL_(a, b) a##b

// Ends the program if an invariant of our own is broken. No input may reach it: bad input gets a
// Status.
#define PF_CHECK(cond)                                                                  \
  do {                                                                                  \
    if (!(cond)) {                                                                      \
      std::fprintf(stderr, "%s:%d: broken invariant: %s\n", __FILE__, __LINE__, #cond); \
      std::abort();                                                                     \
    }                                                                                   \
  } while (false)
