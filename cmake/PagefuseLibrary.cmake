# SPDX-License-Identifier: Apache-2.0
include(PagefusePrecompiled)
include(PagefuseUnity)

# What is installed without a word of its component: headers, static libraries and the package configuration.
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME development)

# pf_install_program(<target> RUNTIME|LIBRARY <folder> <libraries>): installs what users run. The archive of CPack has the shared
# libraries that it needs in <libraries>, relative to <folder>. The old kind of run path is asked for, since the libraries find each
# other by it too.
function(pf_install_program target kind folder libraries)
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN/${libraries}")
  target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
  install(TARGETS ${target} RUNTIME_DEPENDENCY_SET pagefuse_shared ${kind} DESTINATION ${folder} COMPONENT program)
endfunction()

# pf_library(<layer> SOURCES ... PUBLIC_HEADERS ... DEPS ... PRIVATE_DEPS ...)
#
# Makes the static library pagefuse::<layer>. The file X of the checkout is included as "pagefuse/X", through an include
# root of the layer's own (build/include/<layer>), so that a layer which does not list another one among its
# dependencies cannot include its headers. PUBLIC_HEADERS are installed, all other headers are private.
function(pf_library layer)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;PUBLIC_HEADERS;DEPS;PRIVATE_DEPS")
  set(target pagefuse_${layer})
  set(root ${PROJECT_BINARY_DIR}/include/${layer})
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE folder)
  cmake_path(GET folder PARENT_PATH parent)
  # What an earlier configuration linked may lie elsewhere by now.
  file(REMOVE_RECURSE ${root})
  file(MAKE_DIRECTORY ${root}/pagefuse/${parent})
  file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR} ${root}/pagefuse/${folder} SYMBOLIC)

  add_library(${target} STATIC ${arg_SOURCES})
  add_library(pagefuse::${layer} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${layer} POSITION_INDEPENDENT_CODE ON
                        VERIFY_INTERFACE_HEADER_SETS ON)
  list(TRANSFORM arg_PUBLIC_HEADERS PREPEND ${root}/pagefuse/${folder}/)
  target_sources(${target} PUBLIC FILE_SET HEADERS BASE_DIRS ${root} FILES ${arg_PUBLIC_HEADERS})
  target_link_libraries(${target} PUBLIC ${arg_DEPS} PRIVATE ${arg_PRIVATE_DEPS})
  pf_compile_options(${target})
  pf_precompile(${target} library)
  pf_unity(${target})

  install(TARGETS ${target} EXPORT pagefuse-targets
          FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endfunction()

# Warnings and sanitizers, for every target of the project.
function(pf_compile_options target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set(options -Wall -Wextra -Wpedantic)
  if(PAGEFUSE_WERROR)
    list(APPEND options -Werror)
  endif()
  if(PAGEFUSE_SANITIZE)
    list(APPEND options -fsanitize=${PAGEFUSE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(${target} PUBLIC -fsanitize=${PAGEFUSE_SANITIZE})
  endif()
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${options}>")
endfunction()

# pf_program(<name> SOURCES ... DEPS ... KIND program|test): an executable of the project. KIND: its precompiled headers.
function(pf_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "KIND" "SOURCES;DEPS")
  if(NOT arg_KIND)
    set(arg_KIND program)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_DEPS})
  pf_compile_options(${name})
  pf_precompile(${name} ${arg_KIND})
  pf_unity(${name})
endfunction()
