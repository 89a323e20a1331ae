# SPDX-License-Identifier: Apache-2.0
# CPack: pagefuse (the program and libpagefuse_ort.so) and pagefuse-dev as .deb, which name the packages of Debian that they need, and
# one .tar.gz of the program that has these libraries in it. `./dev package` makes and tries them.
set(documents ${CMAKE_INSTALL_DATADIR}/doc/pagefuse)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${documents} COMPONENT program RENAME copyright)
install(FILES ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md DESTINATION ${documents} COMPONENT program)

# What every Debian has stays out; the licences of what is copied come along.
install(RUNTIME_DEPENDENCY_SET pagefuse_shared
        PRE_EXCLUDE_REGEXES "^lib(c|m|dl|rt|pthread|resolv|stdc\\+\\+|gcc_s)\\.so" "^ld-linux"
        POST_EXCLUDE_REGEXES "^${PROJECT_BINARY_DIR}"
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/pagefuse COMPONENT shared EXCLUDE_FROM_ALL)
install(CODE "
  file(GLOB copied \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/pagefuse/*.so*\")
  file(MAKE_DIRECTORY \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${documents}\")
  foreach(file IN LISTS copied)
    get_filename_component(name \${file} NAME)
    execute_process(COMMAND dpkg-query -S */\${name} OUTPUT_VARIABLE owner ERROR_QUIET)
    if(owner MATCHES \"^([a-z0-9.+-]+)\")
      file(COPY_FILE /usr/share/doc/\${CMAKE_MATCH_1}/copyright
           \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${documents}/copyright.\${CMAKE_MATCH_1}\")
    endif()
  endforeach()" COMPONENT shared EXCLUDE_FROM_ALL)

set(CPACK_PACKAGE_VENDOR "pagefuse")
set(CPACK_PACKAGE_CONTACT "pagefuse maintainers <maintainers@pagefuse.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_BINARY_DIR}/pagefuse-cpack.cmake)
file(WRITE ${CPACK_PROJECT_CONFIG_FILE} [[
if(CPACK_GENERATOR STREQUAL "TGZ")
  set(CPACK_COMPONENTS_ALL program shared)
  set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
  set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY ON)
else()
  set(CPACK_COMPONENTS_ALL program development)
endif()
]])
set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
set(CPACK_SYSTEM_NAME "${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR}")

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME pagefuse)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME pagefuse-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "pagefuse (= ${PROJECT_VERSION}), libabsl-dev, libdnnl-dev, libhwy-dev, libonnx-dev, \
libpcre2-dev, libprotobuf-dev, libsimdjson-dev, libutf8proc-dev, nlohmann-json3-dev")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "Headers, static libraries and the CMake package of pagefuse")
include(CPack)
