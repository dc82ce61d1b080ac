# One function per kind of target. A file in src/<part> belongs to that part; no list names it.

# The commit, for `drover --version`. Builds for tests omit it: otherwise their programs would differ at each commit.
function(drover_revision result)
  if(NOT DROVER_SHOW_REVISION)
    set(${result} "development build" PARENT_SCOPE)
    return()
  endif()
  execute_process(COMMAND git -C "${PROJECT_SOURCE_DIR}" rev-parse --short=12 HEAD
    OUTPUT_VARIABLE revision OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(failed)
    set(revision "unknown revision")
  endif()
  set(${result} "${revision}" PARENT_SCOPE)
endfunction()

# Compiles the sources of each directory of a target in batches of at most `size`, one translation unit each.
# A batch never spans two directories, so a new file changes the batches of its own directory only.
function(drover_compile_in_batches target size)
  if(NOT DROVER_UNITY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    get_filename_component(folder "${source}" ABSOLUTE)
    get_filename_component(folder "${folder}" DIRECTORY)
    file(RELATIVE_PATH folder "${PROJECT_SOURCE_DIR}" "${folder}/")
    string(MAKE_C_IDENTIFIER "${folder}" folder)
    math(EXPR batch "0${count_${folder}} / ${size}")
    math(EXPR count_${folder} "0${count_${folder}} + 1")
    set_source_files_properties("${source}" TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP "${folder}${batch}")
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()

# Adds the compiled half of fmt to a library.
function(drover_add_fmt target)
  target_sources(${target} PRIVATE "${PROJECT_SOURCE_DIR}/cmake/fmt.cpp")
  set_source_files_properties("${PROJECT_SOURCE_DIR}/cmake/fmt.cpp" TARGET_DIRECTORY ${target}
    PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# The library `drover`, static, from the parts' directories.
function(drover_add_library)
  cmake_parse_arguments(arg "" "" "PARTS" ${ARGN})
  set(sources)
  foreach(part IN LISTS arg_PARTS)
    file(GLOB_RECURSE part_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/${part}/*.cpp")
    list(APPEND sources ${part_sources})
  endforeach()
  add_library(drover_objects OBJECT ${sources})
  drover_compile_in_batches(drover_objects 16)
  drover_add_fmt(drover_objects)
  target_include_directories(drover_objects PUBLIC "${PROJECT_SOURCE_DIR}/include" PRIVATE "${PROJECT_SOURCE_DIR}/src")
  target_link_libraries(drover_objects PUBLIC Threads::Threads ${CMAKE_DL_LIBS} PRIVATE drover_flags drover_fmt
    drover_msgpack)
  if(DROVER_SANITIZE)
    target_compile_options(drover_objects PRIVATE -fsanitize=${DROVER_SANITIZE})
  endif()
  target_compile_definitions(drover_objects PUBLIC $<$<NOT:$<BOOL:${DROVER_TRACE}>>:DROVER_NO_TRACE>)

  drover_revision(revision)
  set_source_files_properties("${PROJECT_SOURCE_DIR}/src/base/version.cpp" PROPERTIES COMPILE_DEFINITIONS
    "DROVER_VERSION=\"${PROJECT_VERSION}\";DROVER_REVISION=\"${revision}\";DROVER_BUILD_TYPE=\"${CMAKE_BUILD_TYPE}\";DROVER_COMPILER=\"${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}\"")

  add_library(drover STATIC $<TARGET_OBJECTS:drover_objects>)
  add_library(drover::drover ALIAS drover)
  target_include_directories(drover PUBLIC "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>"
    "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
  target_compile_features(drover PUBLIC cxx_std_20)
  target_compile_definitions(drover PUBLIC $<$<NOT:$<BOOL:${DROVER_TRACE}>>:DROVER_NO_TRACE>)
  target_link_libraries(drover PUBLIC Threads::Threads ${CMAKE_DL_LIBS})
endfunction()

# A program of ours: flags, the library, fmt.
function(drover_add_program name)
  add_executable(${name} ${ARGN})
  drover_compile_in_batches(${name} 8)
  target_link_libraries(${name} PRIVATE drover drover_flags drover_fmt)
endfunction()

# The tests of a part: one program of every *_test.cpp in tests/<part> and its rooms, one ctest test per suite.
# A directory `fixture` holds sources of other programs. SOURCES and LIBRARIES add conformance suites and the like;
# READS names further targets that the tests run or load.
function(drover_add_tests part)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBRARIES;READS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/${part}/*_test.cpp")
  list(FILTER sources EXCLUDE REGEX "/fixture/")
  drover_add_program(${part}_test ${sources} ${arg_SOURCES})
  target_include_directories(${part}_test PRIVATE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/tests")
  target_link_libraries(${part}_test PRIVATE drover_test_support ${arg_LIBRARIES})
  set(file "${CMAKE_CURRENT_BINARY_DIR}/${part}_suites.cmake")
  file(GENERATE OUTPUT "${file}" CONTENT "set(part ${part})
set(program \"$<TARGET_FILE:${part}_test>\")
include(\"${PROJECT_SOURCE_DIR}/cmake/suites.cmake\")
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${file}")

  # The files that scripts/run_tests.py compares to decide whether these tests have passed already.
  set(read_files)
  foreach(target IN LISTS arg_READS)
    add_dependencies(${part}_test ${target})
    list(APPEND read_files "$<TARGET_FILE:${target}>")
  endforeach()
  file(GENERATE OUTPUT "${PROJECT_BINARY_DIR}/test_programs/${part}"
    CONTENT "$<JOIN:$<TARGET_FILE:${part}_test>;${read_files},\n>\n")
endfunction()

# A program that is a test by itself: it must succeed when run with the remaining arguments. The group is its label in
# ctest.
function(drover_add_program_test group name program)
  add_test(NAME ${name} COMMAND ${program} ${ARGN})
  set_tests_properties(${name} PROPERTIES TIMEOUT 300 LABELS ${group})
  set_property(GLOBAL APPEND PROPERTY drover_${group}_programs "$<TARGET_FILE:${program}>")
endfunction()

# Lists the programs of a group for scripts/run_tests.py; call it after the last one was added.
function(drover_list_program_tests group)
  get_property(programs GLOBAL PROPERTY drover_${group}_programs)
  if(programs)
    file(GENERATE OUTPUT "${PROJECT_BINARY_DIR}/test_programs/${group}" CONTENT "$<JOIN:${programs},\n>\n")
  endif()
endfunction()
