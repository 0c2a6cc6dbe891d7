# What `make install` puts where: the program, the library, its headers, the CMake package, the
# pkg-config file, man pages and shell completions.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# One library of all folders below the server, shared and static.
set(objects "")
foreach(folder base kernels file model text transformer policies decode engine api)
  list(APPEND objects $<TARGET_OBJECTS:spa_${folder}>)
endforeach()
set(dependencies Threads::Threads fmt::fmt hwy::hwy)

add_library(spa_shared SHARED ${objects})
target_link_libraries(spa_shared PRIVATE ${dependencies} PkgConfig::UTF8PROC)
set_target_properties(spa_shared PROPERTIES OUTPUT_NAME spa EXPORT_NAME spa
                      VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
add_library(spa::spa ALIAS spa_shared)

add_library(spa_static STATIC ${objects})
target_link_libraries(spa_static INTERFACE ${dependencies} $<INSTALL_INTERFACE:utf8proc>)
set_target_properties(spa_static PROPERTIES OUTPUT_NAME spa EXPORT_NAME static)
add_library(spa::static ALIAS spa_static)

foreach(library spa_shared spa_static)
  target_include_directories(${library} INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<BUILD_INTERFACE:${CMAKE_BINARY_DIR}/public>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(${library} INTERFACE cxx_std_20)
endforeach()

# Both find the libraries of the tarball (see package.cmake) wherever it is unpacked, and so do those
# libraries among themselves: that takes the older kind of tag.
set_target_properties(spa PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}/spa")
set_target_properties(spa_shared PROPERTIES INSTALL_RPATH "$ORIGIN/spa")
foreach(target spa spa_shared)
  target_link_options(${target} PRIVATE LINKER:--disable-new-dtags)
endforeach()
install(TARGETS spa RUNTIME_DEPENDENCY_SET spa_needs)
install(TARGETS spa_shared EXPORT spa)
install(TARGETS spa_static EXPORT spa-static)
install(DIRECTORY include/spa ${CMAKE_BINARY_DIR}/public/spa
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/spa)
install(EXPORT spa DESTINATION ${package_dir} NAMESPACE spa:: FILE spa-targets.cmake)
install(EXPORT spa-static DESTINATION ${package_dir} NAMESPACE spa:: FILE spa-static-targets.cmake)
configure_package_config_file(cmake/spa-config.cmake.in spa-config.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(spa-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/spa-config.cmake ${CMAKE_BINARY_DIR}/spa-config-version.cmake
        DESTINATION ${package_dir})

# Relative to the file itself, so that the tree can be moved.
set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH pkgconfig_to_prefix /${pkgconfig_dir} /)
configure_file(cmake/spa.pc.in spa.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/spa.pc DESTINATION ${pkgconfig_dir})

# The program writes its own man pages and completions from the declarations of its flags.
set(reference ${CMAKE_BINARY_DIR}/share)
add_custom_command(OUTPUT ${reference}/man/man1/spa.1
                   COMMAND spa reference ${reference} DEPENDS spa VERBATIM
                   COMMENT "Writing man pages and completions")
add_custom_target(spa_reference ALL DEPENDS ${reference}/man/man1/spa.1)
install(DIRECTORY ${reference}/ DESTINATION ${CMAKE_INSTALL_DATADIR})
install(FILES LICENSE CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
