# Options of the build, and the flags of all targets.

option(DROVER_BUILD_CLI "Build the command-line tool" ON)
option(DROVER_BUILD_PYTHON "Build the compiled half of the Python package; needs nanobind" OFF)
option(DROVER_BUILD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(DROVER_BUILD_EXAMPLES "Build the examples" ${PROJECT_IS_TOP_LEVEL})
option(DROVER_BUILD_BENCHMARKS "Build the benchmarks" ${PROJECT_IS_TOP_LEVEL})
option(DROVER_BUILD_FUZZERS "Add the target `fuzzers`; needs clang" OFF)
option(DROVER_WERROR "Treat warnings as errors" OFF)
option(DROVER_TRACE "Compile the trace hook (one load and one branch while unused)" ON)
option(DROVER_UNITY "Compile the sources of a directory in batches, in a quarter of the time"
  ${PROJECT_IS_TOP_LEVEL})
option(DROVER_TEST_ALL_PARTS "Under a sanitizer, also build the tests of parts where it finds little" OFF)
option(DROVER_SHOW_REVISION "Show the commit in `drover --version`" ON)
set(DROVER_SANITIZE "" CACHE STRING "Sanitizers of the library: empty, 'address,undefined' or 'thread'")
set(DROVER_SANITIZE_TESTS "${DROVER_SANITIZE}" CACHE STRING "Sanitizers of everything else; by default the same")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Kind of build" FORCE)
endif()

find_package(Threads REQUIRED)

# Flags of our own code, which users of the library do not inherit.
add_library(drover_flags INTERFACE)
target_compile_options(drover_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion
  -Wnon-virtual-dtor -Woverloaded-virtual -Wcast-qual -Wformat=2
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>
  $<$<CXX_COMPILER_ID:GNU>:-Wno-missing-field-initializers>
  # False positives of GCC 13 inside fmt, after inlining.
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<CONFIG:Release>>:-Wno-array-bounds>
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<CONFIG:Release>>:-Wno-stringop-overflow>
  # False positive of GCC 12 in std::string, after inlining (GCC bug 105651).
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>,$<CONFIG:Release>>:-Wno-restrict>
  # GCC treats a source in a batch as a header, and warns of members whose type is in an unnamed namespace.
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<BOOL:${DROVER_UNITY}>>:-Wno-subobject-linkage>
  $<$<BOOL:${DROVER_WERROR}>:-Werror>)
# Frame pointers make the stacks of hung and crashed processes readable at no measurable cost.
target_compile_options(drover_flags INTERFACE -fno-omit-frame-pointer)
if(DROVER_SANITIZE)
  target_compile_options(drover_flags INTERFACE -fsanitize=${DROVER_SANITIZE_TESTS} -fno-sanitize-recover=all)
  target_link_options(drover_flags INTERFACE -fsanitize=${DROVER_SANITIZE})
  # False positives of GCC in instrumented code.
  target_compile_options(drover_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
endif()
