# SPDX-License-Identifier: Apache-2.0
# Finds PCRE2 for texts of bytes. Debian's package has no CMake configuration.
find_path(Pcre2_INCLUDE_DIR pcre2.h)
find_library(Pcre2_LIBRARY pcre2-8)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Pcre2 REQUIRED_VARS Pcre2_LIBRARY Pcre2_INCLUDE_DIR)
if(Pcre2_FOUND AND NOT TARGET Pcre2::pcre2)
  add_library(Pcre2::pcre2 UNKNOWN IMPORTED)
  set_target_properties(Pcre2::pcre2 PROPERTIES IMPORTED_LOCATION ${Pcre2_LIBRARY}
                        INTERFACE_INCLUDE_DIRECTORIES ${Pcre2_INCLUDE_DIR})
endif()
mark_as_advanced(Pcre2_INCLUDE_DIR Pcre2_LIBRARY)
