# Installs the headers of include/, the static library, the tool, and a package for find_package(drover).

include(CMakePackageConfigHelpers)

install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/drover" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(TARGETS drover EXPORT drover_targets ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(EXPORT drover_targets NAMESPACE drover:: FILE drover-targets.cmake
  DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/drover")
file(WRITE "${PROJECT_BINARY_DIR}/drover-config.cmake" "include(CMakeFindDependencyMacro)
find_dependency(Threads)
include(\"\${CMAKE_CURRENT_LIST_DIR}/drover-targets.cmake\")
")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/drover-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/drover-config.cmake" "${PROJECT_BINARY_DIR}/drover-config-version.cmake"
  DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/drover")
if(DROVER_BUILD_CLI)
  install(TARGETS drover_cli RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()
