# `make package`: a .deb with a systemd service, and a tarball that brings its libraries.
set(CPACK_PACKAGE_VENDOR "spa.cpp")
set(CPACK_PACKAGE_CONTACT "spa.cpp authors <spa.cpp@localhost>")
set(CPACK_PACKAGE_FILE_NAME spa-${PROJECT_VERSION}-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libfmt-dev, libhwy-dev, libutf8proc-dev")  # to link libspa.a
set(packaging ${PROJECT_SOURCE_DIR}/packaging)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA
    ${packaging}/postinst ${packaging}/prerm ${packaging}/postrm ${packaging}/conffiles
    ${packaging}/triggers)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

# Only in the .deb.
install(FILES ${packaging}/spa.service DESTINATION lib/systemd/system
        COMPONENT service EXCLUDE_FROM_ALL)
install(FILES ${packaging}/serve.conf DESTINATION /etc/spa COMPONENT service EXCLUDE_FROM_ALL)
# Only in the tarball: every library but those of the system's C library.
install(RUNTIME_DEPENDENCY_SET spa_needs
        PRE_EXCLUDE_REGEXES "^lib(c|m|dl|pthread|rt)\\.so" "^ld-linux"
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/spa COMPONENT bundled EXCLUDE_FROM_ALL)

set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_BINARY_DIR}/package-parts.cmake)
file(CONFIGURE OUTPUT ${CPACK_PROJECT_CONFIG_FILE} @ONLY CONTENT [[
set(part bundled)
if(CPACK_GENERATOR STREQUAL "DEB")
  set(part service)
endif()
set(CPACK_INSTALL_CMAKE_PROJECTS
    "@CMAKE_BINARY_DIR@;spa;ALL;/;@CMAKE_BINARY_DIR@;spa;${part};/")
]])
include(CPack)
