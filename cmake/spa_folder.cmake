# spa_folder(NAME LINK <public dependencies> PRIVATE <private dependencies>)
# makes the library spa_NAME from src/NAME/*.cc. Its include root holds only src/NAME, so
# `#include "kernels/matmul.h"` compiles only in targets that link spa_kernels: the folder
# rules of docs/architecture.md hold by themselves.
function(spa_folder name)
  cmake_parse_arguments(ARG "" "" "LINK;PRIVATE" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*.cc)
  set(root ${CMAKE_BINARY_DIR}/include/${name})
  file(MAKE_DIRECTORY ${root})
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/src/${name} ${root}/${name} SYMBOLIC)
  add_library(spa_${name} STATIC ${sources})
  target_include_directories(spa_${name} PUBLIC ${root})
  target_link_libraries(spa_${name} PUBLIC ${ARG_LINK} PRIVATE ${ARG_PRIVATE})
endfunction()

# spa_embed(NAME SYMBOL FILE) compiles FILE into spa_NAME as the bytes between SYMBOL_begin and
# SYMBOL_end.
function(spa_embed name symbol file)
  set(source ${CMAKE_BINARY_DIR}/${symbol}.S)
  file(CONFIGURE OUTPUT ${source} @ONLY CONTENT [[
    .section .rodata
    .balign 64
    .global @symbol@_begin
@symbol@_begin:
    .incbin "@file@"
    .global @symbol@_end
@symbol@_end:
    .byte 0
    .section .note.GNU-stack,"",%progbits
]])
  set_source_files_properties(${source} PROPERTIES OBJECT_DEPENDS ${file})
  target_sources(spa_${name} PRIVATE ${source})
endfunction()
