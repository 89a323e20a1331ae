# SPDX-License-Identifier: Apache-2.0
# pagefuse_add_expectations(<folder> [PLUGIN <target>]): a CTest case that runs `pagefuse expect` over the pass tests and
# expectations in the folder, with the plug-in that the target builds. PAGEFUSE_EXECUTABLE names the program where it is no
# target of this build.
function(pagefuse_add_expectations folder)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "PLUGIN" "")
  cmake_path(ABSOLUTE_PATH folder OUTPUT_VARIABLE absolute)
  if(NOT IS_DIRECTORY ${absolute})
    message(FATAL_ERROR "pagefuse_add_expectations: there is no folder ${absolute}")
  endif()
  set(program ${PAGEFUSE_EXECUTABLE})
  if(TARGET pagefuse)
    set(program $<TARGET_FILE:pagefuse>)
  endif()
  cmake_path(GET absolute FILENAME name)
  set(plugin)
  if(arg_PLUGIN)
    set(plugin --plugin $<TARGET_FILE:${arg_PLUGIN}>)
  endif()
  add_test(NAME expect.${name} COMMAND ${program} expect ${absolute} ${plugin})
endfunction()
