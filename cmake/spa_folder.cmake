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
