# Switches of the build, and the flags that every target of ours gets.

option(DROVER_BUILD_CLI "Build the command-line tool" ON)
option(DROVER_BUILD_PYTHON "Build the compiled half of the Python package; needs nanobind" OFF)
option(DROVER_BUILD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(DROVER_BUILD_EXAMPLES "Build the examples" ${PROJECT_IS_TOP_LEVEL})
option(DROVER_BUILD_BENCHMARKS "Build the benchmarks" ${PROJECT_IS_TOP_LEVEL})
option(DROVER_BUILD_FUZZERS "Let the target `fuzzers` build the fuzzers; needs clang" OFF)
option(DROVER_WERROR "Treat warnings as errors" OFF)
option(DROVER_TRACE "Keep the trace hook (one load and one branch when nobody listens)" ON)
option(DROVER_UNITY "Compile the sources of a folder in batches: a quarter of the time, since headers are most of it"
  ${PROJECT_IS_TOP_LEVEL})
option(DROVER_TEST_ALL_PARTS "Build the tests of parts too that a sanitizer has little to say about" OFF)
option(DROVER_SHOW_REVISION "Say in `drover --version` from which commit it was built" ON)
set(DROVER_SANITIZE "" CACHE STRING "Sanitizers of the library: empty, 'address,undefined' or 'thread'")
set(DROVER_SANITIZE_TESTS "${DROVER_SANITIZE}" CACHE STRING "Sanitizers of the rest; the same ones unless given")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Kind of build" FORCE)
endif()

find_package(Threads REQUIRED)

# Flags of our own code; users of the library do not inherit them.
add_library(drover_flags INTERFACE)
target_compile_options(drover_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion
  -Wnon-virtual-dtor -Woverloaded-virtual -Wcast-qual -Wformat=2
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>
  $<$<CXX_COMPILER_ID:GNU>:-Wno-missing-field-initializers>
  # GCC 13 warns of bounds inside fmt when it inlines much (false alarms of its analysis).
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<CONFIG:Release>>:-Wno-array-bounds>
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<CONFIG:Release>>:-Wno-stringop-overflow>
  # GCC 12 warns of overlapping copies in its own std::string when it inlines much (GCC bug 105651).
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>,$<CONFIG:Release>>:-Wno-restrict>
  # Types of a source that hold others of its unnamed namespace; GCC takes the source of a batch for a header.
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<BOOL:${DROVER_UNITY}>>:-Wno-subobject-linkage>
  $<$<BOOL:${DROVER_WERROR}>:-Werror>)
# Frame pointers make stacks of hung and crashed processes readable, at no measurable cost.
target_compile_options(drover_flags INTERFACE -fno-omit-frame-pointer)
if(DROVER_SANITIZE)
  target_compile_options(drover_flags INTERFACE -fsanitize=${DROVER_SANITIZE_TESTS} -fno-sanitize-recover=all)
  target_link_options(drover_flags INTERFACE -fsanitize=${DROVER_SANITIZE})
  # GCC's flow analysis of instrumented code sees uninitialised values that cannot be.
  target_compile_options(drover_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
endif()
