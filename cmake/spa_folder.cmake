# What nearly every file includes, parsed once for all folders.
set(spa_common_headers <algorithm> <array> <atomic> <charconv> <chrono> <cmath> <cstring>
                       <filesystem> <fstream> <functional> <map> <memory> <numeric> <optional>
                       <set> <span> <sstream> <string> <thread> <unordered_map> <variant> <vector>
                       <fmt/format.h>)

# spa_precompile(TARGET OWNER HEADERS...) gives TARGET the precompiled headers of OWNER, which may be
# TARGET itself.
function(spa_precompile target owner)
  if(target STREQUAL owner)
    target_precompile_headers(${target} PRIVATE ${ARGN})
  else()
    target_precompile_headers(${target} REUSE_FROM ${owner})
  endif()
endfunction()

# spa_folder(NAME [NOT_HOT] LINK <public dependencies> PRIVATE <private dependencies>)
# makes the library spa_NAME from src/NAME/*.cc and its sub-folders. Its include root holds only src/NAME, so
# `#include "kernels/matmul.h"` compiles only in targets that link spa_kernels: the folder
# rules of docs/architecture.md hold by themselves. NOT_HOT spares the compiler's time.
function(spa_folder name)
  cmake_parse_arguments(ARG "NOT_HOT" "" "LINK;PRIVATE" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*.cc
       ${PROJECT_SOURCE_DIR}/src/${name}/*/*.cc)
  set(root ${CMAKE_BINARY_DIR}/include/${name})
  file(MAKE_DIRECTORY ${root})
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/src/${name} ${root}/${name} SYMBOLIC)
  add_library(spa_${name} STATIC ${sources})
  target_include_directories(spa_${name} PUBLIC ${root})
  target_link_libraries(spa_${name} PUBLIC ${ARG_LINK} PRIVATE ${ARG_PRIVATE})
  # A precompiled header belongs to one level of optimisation.
  if(ARG_NOT_HOT)
    target_compile_options(spa_${name} PRIVATE $<$<CONFIG:Release>:-O1>)
    spa_precompile(spa_${name} spa_engine ${spa_common_headers})
  else()
    spa_precompile(spa_${name} spa_base ${spa_common_headers})
  endif()
endfunction()

# spa_optimize(LEVEL FILES...) compiles some files of a release at another level than their folder,
# each by itself.
function(spa_optimize level)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_PRECOMPILE_HEADERS ON
                              SKIP_UNITY_BUILD_INCLUSION ON
                              COMPILE_OPTIONS $<$<CONFIG:Release>:${level}>)
endfunction()

# spa_embed(NAME SYMBOL FILE) compiles FILE into spa_NAME as the bytes between SYMBOL_begin and
# SYMBOL_end.
function(spa_embed name symbol file)
  set(source ${CMAKE_BINARY_DIR}/${symbol}.S)
  file(CONFIGURE OUTPUT ${source} @ONLY CONTENT [[
    .section .rodata
    .balign 64
    .global @symbol@_begin
    .hidden @symbol@_begin
@symbol@_begin:
    .incbin "@file@"
    .global @symbol@_end
    .hidden @symbol@_end
@symbol@_end:
    .byte 0
    .section .note.GNU-stack,"",%progbits
]])
  set_source_files_properties(${source} PROPERTIES OBJECT_DEPENDS ${file})
  target_sources(spa_${name} PRIVATE ${source})
endfunction()
