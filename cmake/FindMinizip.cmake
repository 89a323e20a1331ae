# SPDX-License-Identifier: Apache-2.0
# Finds minizip. Debian's package has no CMake configuration.
find_path(Minizip_INCLUDE_DIR minizip/unzip.h)
find_library(Minizip_LIBRARY minizip)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Minizip REQUIRED_VARS Minizip_LIBRARY Minizip_INCLUDE_DIR)
if(Minizip_FOUND AND NOT TARGET Minizip::minizip)
  add_library(Minizip::minizip UNKNOWN IMPORTED)
  set_target_properties(Minizip::minizip PROPERTIES IMPORTED_LOCATION ${Minizip_LIBRARY}
                        INTERFACE_INCLUDE_DIRECTORIES ${Minizip_INCLUDE_DIR})
endif()
mark_as_advanced(Minizip_INCLUDE_DIR Minizip_LIBRARY)
