# SPDX-License-Identifier: Apache-2.0
# Installs the libraries and the package configuration that find_package(pagefuse) reads.
include(CMakePackageConfigHelpers)
set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/pagefuse)
install(EXPORT pagefuse-targets NAMESPACE pagefuse:: DESTINATION ${config_dir})
install(EXPORT pagefuse-plugin-api-targets NAMESPACE pagefuse:: DESTINATION ${config_dir})
set(executable ${CMAKE_INSTALL_BINDIR}/pagefuse)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/pagefuse-config.cmake.in
                              ${PROJECT_BINARY_DIR}/pagefuse-config.cmake
                              INSTALL_DESTINATION ${config_dir}
                              PATH_VARS executable)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/pagefuse-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/pagefuse-config.cmake
              ${PROJECT_BINARY_DIR}/pagefuse-config-version.cmake
              ${PROJECT_SOURCE_DIR}/cmake/FindDnnl.cmake
              ${PROJECT_SOURCE_DIR}/cmake/FindPcre2.cmake
              ${PROJECT_SOURCE_DIR}/cmake/FindUtf8proc.cmake
              ${PROJECT_SOURCE_DIR}/cmake/PagefuseExpectations.cmake
        DESTINATION ${config_dir})
