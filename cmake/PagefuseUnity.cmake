# SPDX-License-Identifier: Apache-2.0
# Unity builds: sources that do not get in each other's way are compiled as one, so that the headers that they share are
# read once. A clean build of the program takes four fifths of the time. PAGEFUSE_UNITY=OFF compiles each source alone, as ./dev lint reads
# them: better where one source is changed again and again.
option(PAGEFUSE_UNITY "Compile several sources as one" ON)
find_program(pf_python3 python3)
mark_as_advanced(pf_python3)

# pf_unity(<target>): call it when the target's sources are known.
function(pf_unity target)
  if(NOT PAGEFUSE_UNITY OR NOT pf_python3)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.cc$")
  list(LENGTH sources count)
  if(count LESS 4)
    return()
  endif()
  set(known ${CMAKE_CURRENT_BINARY_DIR}/${target}.unity)
  execute_process(COMMAND ${pf_python3} ${PROJECT_SOURCE_DIR}/cmake/unity_groups.py ${known} ${sources}
                  WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} OUTPUT_VARIABLE groups COMMAND_ERROR_IS_FATAL ANY)
  file(WRITE ${known} "${groups}")
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC takes a source within another one for a header, where unnamed namespaces would be a mistake.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
  endif()
  string(REGEX MATCHALL "[^\n]+" lines "${groups}")
  foreach(line IN LISTS lines)
    string(REGEX MATCH "^([0-9]+) (.*)$" line "${line}")
    set_source_files_properties(${CMAKE_MATCH_2} PROPERTIES UNITY_GROUP ${CMAKE_MATCH_1})
  endforeach()
endfunction()
