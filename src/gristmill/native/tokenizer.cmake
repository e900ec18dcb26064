# The extension gristmill._tokenizer: text to ids and back. See tokenizer/bindings.cpp for its Python face.
nanobind_add_module(_tokenizer
  ${CMAKE_CURRENT_LIST_DIR}/tokenizer/bindings.cpp
  ${CMAKE_CURRENT_LIST_DIR}/tokenizer/build.cpp
  ${CMAKE_CURRENT_LIST_DIR}/tokenizer/codec.cpp
  ${CMAKE_CURRENT_LIST_DIR}/tokenizer/merge.cpp
  ${CMAKE_CURRENT_LIST_DIR}/tokenizer/phrases.cpp
  ${CMAKE_CURRENT_LIST_DIR}/tokenizer/train_bpe.cpp
  ${CMAKE_CURRENT_LIST_DIR}/tokenizer/unicode.cpp
  ${CMAKE_CURRENT_LIST_DIR}/tokenizer/vocab.cpp
)
target_compile_options(_tokenizer PRIVATE $<$<CONFIG:Release>:-O3>)
install(TARGETS _tokenizer LIBRARY DESTINATION gristmill)
