# Finds every third-party library, in the system's packages or in the directory .deps, which `make bundle` fills for
# machines without a network. All are header-only except GoogleTest, which is built with our flags so that sanitizers
# instrument it.

set(DROVER_DEPS "${PROJECT_SOURCE_DIR}/.deps" CACHE PATH "Headers and sources for offline machines")

function(drover_find_header variable header package)
  find_path(${variable} ${header} PATHS "${DROVER_DEPS}/include")
  if(NOT ${variable})
    message(FATAL_ERROR "${header} was not found.\n"
      "Install the Debian or Ubuntu package '${package}' (`make setup` does it), or on a machine with a network "
      "run `make bundle` and copy the directory .deps to ${PROJECT_SOURCE_DIR}.")
  endif()
endfunction()

function(drover_add_header_library target variable)
  add_library(${target} INTERFACE)
  target_include_directories(${target} SYSTEM INTERFACE "${${variable}}")
endfunction()

drover_find_header(DROVER_FMT_INCLUDE fmt/format.h libfmt-dev)
drover_add_header_library(drover_fmt DROVER_FMT_INCLUDE)
# cmake/fmt.cpp compiles the parts that are not templates into the library, in a namespace of our own, so that a program
# may link another fmt beside it.
target_compile_definitions(drover_fmt INTERFACE
  "FMT_BEGIN_NAMESPACE=namespace fmt { inline namespace drover_fmt {" "FMT_END_NAMESPACE=} }")

drover_find_header(DROVER_MSGPACK_INCLUDE msgpack/unpack.hpp libmsgpack-cxx-dev)
drover_add_header_library(drover_msgpack DROVER_MSGPACK_INCLUDE)
target_compile_definitions(drover_msgpack INTERFACE MSGPACK_NO_BOOST=1)

if(DROVER_BUILD_CLI OR DROVER_BUILD_BENCHMARKS OR DROVER_BUILD_TESTS)
  drover_find_header(DROVER_CLI11_INCLUDE CLI/CLI.hpp libcli11-dev)
  drover_add_header_library(drover_cli11 DROVER_CLI11_INCLUDE)
  drover_find_header(DROVER_JSON_INCLUDE nlohmann/json.hpp nlohmann-json3-dev)
  drover_add_header_library(drover_json DROVER_JSON_INCLUDE)
endif()

# Contenders of benchmarks are optional. ZeroMQ is not searched for: its contender loads it at run time.
if(DROVER_BUILD_BENCHMARKS)
  add_library(drover_boost INTERFACE)
  find_path(DROVER_BOOST_INCLUDE boost/interprocess/ipc/message_queue.hpp)
  if(DROVER_BOOST_INCLUDE)
    target_include_directories(drover_boost SYSTEM INTERFACE "${DROVER_BOOST_INCLUDE}")
    target_compile_definitions(drover_boost INTERFACE DROVER_BENCH_BOOST=1)
  else()
    message(STATUS "Benchmarks run without Boost, which was not found: install libboost-dev (`make bench` does it)")
  endif()
endif()

if(DROVER_BUILD_TESTS)
  find_path(DROVER_GTEST_SOURCE src/gtest-all.cc PATHS /usr/src/googletest/googletest "${DROVER_DEPS}/googletest")
  if(NOT DROVER_GTEST_SOURCE)
    message(FATAL_ERROR "The sources of GoogleTest were not found.\n"
      "Install the package 'libgtest-dev' (`make setup` does it), run `make bundle` elsewhere and copy .deps here, "
      "or configure with -DDROVER_BUILD_TESTS=OFF.")
  endif()
  add_library(drover_gtest STATIC "${DROVER_GTEST_SOURCE}/src/gtest-all.cc")
  target_include_directories(drover_gtest SYSTEM PUBLIC "${DROVER_GTEST_SOURCE}/include")
  target_include_directories(drover_gtest PRIVATE "${DROVER_GTEST_SOURCE}")
  target_link_libraries(drover_gtest PUBLIC Threads::Threads)
  if(DROVER_SANITIZE)
    target_compile_options(drover_gtest PRIVATE -fsanitize=${DROVER_SANITIZE})
  endif()
endif()
