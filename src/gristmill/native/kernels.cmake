# gristmill._kernels: one set of sources, the kernels compiled once for each instruction set and chosen at run time.
set(NATIVE ${CMAKE_CURRENT_LIST_DIR})

set(KERNEL_SOURCES ${NATIVE}/kernels_portable.cpp)
# Vectors wider than the baseline's registers never cross a library boundary here. -O3 compiles it for four times as long
# and makes it slower.
set_source_files_properties(${NATIVE}/kernels_portable.cpp PROPERTIES COMPILE_OPTIONS "-Wno-psabi;-O2")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(PREPEND KERNEL_SOURCES ${NATIVE}/kernels_amx.cpp ${NATIVE}/kernels_avx2.cpp ${NATIVE}/kernels_avxvnni.cpp
       ${NATIVE}/kernels_avx512.cpp ${NATIVE}/kernels_avx512bf16.cpp)  # what takes longest is compiled first
  set(AVX2 "-mavx2;-mfma;-mf16c")
  set(AVX512 "${AVX2};-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mavx512vnni;-mprefer-vector-width=512")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Its own headers trip these two wherever an intrinsic starts from an undefined register (gcc bug 105593).
    list(APPEND AVX512 -Wno-uninitialized -Wno-maybe-uninitialized)
  endif()
  set_source_files_properties(${NATIVE}/kernels_avx2.cpp PROPERTIES COMPILE_OPTIONS "${AVX2};-Wno-psabi")
  set_source_files_properties(${NATIVE}/kernels_avxvnni.cpp PROPERTIES COMPILE_OPTIONS "${AVX2};-mavxvnni;-Wno-psabi")
  set_source_files_properties(${NATIVE}/kernels_avx512.cpp PROPERTIES COMPILE_OPTIONS "${AVX512}")
  set_source_files_properties(${NATIVE}/kernels_avx512bf16.cpp ${NATIVE}/kernels_amx.cpp PROPERTIES COMPILE_OPTIONS "${AVX512};-mavx512bf16")
  if(GRISTMILL_EMULATE_AMX)
    set_source_files_properties(${NATIVE}/kernels_amx.cpp PROPERTIES COMPILE_DEFINITIONS GRISTMILL_EMULATE_AMX)
  endif()
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  list(APPEND KERNEL_SOURCES ${NATIVE}/kernels_neon.cpp)
  set_source_files_properties(${NATIVE}/kernels_neon.cpp PROPERTIES COMPILE_OPTIONS "-march=armv8.2-a+dotprod+fp16")
endif()

nanobind_add_module(_kernels NB_STATIC ${KERNEL_SOURCES}
  ${NATIVE}/bindings.cpp ${NATIVE}/ops.cpp ${NATIVE}/attention.cpp ${NATIVE}/arena.cpp ${NATIVE}/pack.cpp ${NATIVE}/lay.cpp
  ${NATIVE}/unpack.cpp ${NATIVE}/dequantize.cpp ${NATIVE}/grids.cpp ${NATIVE}/quantize.cpp ${NATIVE}/quantize_bindings.cpp
  ${NATIVE}/sample.cpp ${NATIVE}/threads.cpp ${NATIVE}/machine.cpp)
# Contraction would let the compiler fuse multiplications and additions differently from one kernel to the next.
target_compile_options(_kernels PRIVATE $<IF:$<BOOL:${GRISTMILL_SANITIZE}>,-O1,-O3> -ffp-contract=off)
target_link_libraries(_kernels PRIVATE Threads::Threads)
install(TARGETS _kernels LIBRARY DESTINATION gristmill)
