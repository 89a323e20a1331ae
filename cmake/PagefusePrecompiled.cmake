# SPDX-License-Identifier: Apache-2.0
# Precompiled headers: what nearly every source includes of the standard library, of Abseil and of GoogleTest is read once
# a kind of target instead of once a source, where it would be half of the time. No header of the project is among them, so
# that a change of one compiles what includes it and nothing else. Every source still includes what it uses: ./dev lint
# reads it without them, and -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON builds without them.

# ccache stores what was compiled with them if it may take their macros for part of their contents, and needs to see in the
# preprocessed text that they were read.
if(CMAKE_CXX_COMPILER_LAUNCHER MATCHES "ccache$")
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_SLOPPINESS=pch_defines,time_macros ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()

set(pf_library_headers
  <algorithm> <array> <cmath> <cstdint> <cstring> <functional> <limits> <list> <map> <memory> <numeric> <optional> <set> <span>
  <sstream> <string> <string_view> <type_traits> <utility> <variant> <vector>
  <absl/container/flat_hash_map.h> <absl/container/flat_hash_set.h> <absl/status/status.h> <absl/status/statusor.h>
  <absl/strings/str_cat.h> <absl/strings/str_join.h>)
set(pf_program_headers ${pf_library_headers})
set(pf_test_headers ${pf_library_headers} <gmock/gmock.h> <gtest/gtest.h>)

# pf_precompile(<target> library|program|test): call it when the target's own compile options may still follow.
function(pf_precompile target kind)
  cmake_language(EVAL CODE "cmake_language(DEFER CALL pf_precompile_now [[${target}]] [[${kind}]])")
endfunction()

# Targets of one kind share one set, but for those compiled for another machine (-m...), which have their own.
function(pf_precompile_now target kind)
  get_target_property(options ${target} COMPILE_OPTIONS)
  if(options MATCHES "-m[a-z]")
    target_precompile_headers(${target} PRIVATE ${pf_${kind}_headers})
  else()
    pf_precompiled_kind(${kind})
    target_precompile_headers(${target} REUSE_FROM pagefuse_precompiled_${kind})
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
  endif()
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    get_source_file_property(options ${source} COMPILE_OPTIONS)
    if(options MATCHES "-m[a-z]")
      set_source_files_properties(${source} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
    endif()
  endforeach()
endfunction()

# The target that compiles the headers of a kind, as its targets are compiled.
function(pf_precompiled_kind kind)
  set(name pagefuse_precompiled_${kind})
  if(TARGET ${name})
    return()
  endif()
  set(source ${PROJECT_BINARY_DIR}/precompiled/${kind}.cc)
  file(CONFIGURE OUTPUT ${source} CONTENT "// Compiled for its precompiled headers alone.\n")
  add_library(${name} OBJECT ${source})
  target_precompile_headers(${name} PRIVATE ${pf_${kind}_headers})
  target_link_libraries(${name} PRIVATE absl::status absl::statusor absl::strings absl::flat_hash_map)
  if(kind STREQUAL "library")
    set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  elseif(kind STREQUAL "test")
    target_link_libraries(${name} PRIVATE GTest::gmock GTest::gtest)
  endif()
  pf_compile_options(${name})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${name} PRIVATE -fpch-preprocess)
  endif()
endfunction()
