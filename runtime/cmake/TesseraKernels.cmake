# tessera_add_kernels(TARGET FILE.tir|FILE.cpp|FOLDER ... [NAME name] [NAMESPACE namespace] [TARGETS minimum gpu ...]
# [LIBRARIES library ...] [EMBED])
#
# Compiles kernels ahead of time when TARGET is built, and again when one of the files changes, by `tessera bundle`.
# TARGET can then include <name.hpp>, a C++ header with a typed function for each kernel in the namespace `namespace`
# (else `name`), or in C <name_c.h>, whose names begin with the namespace; the bundle is name.tsb, whose path is in the
# variable name_BUNDLE afterwards, to be installed beside the program or given to it. `name` is TARGET_kernels unless it
# is given. TARGETS: what `tessera bundle --targets` takes. With EMBED the headers hold the bundle, and no file is
# needed to run. C++ targets link Tessera::runtime, C targets Tessera::c. Called again for a TARGET, with another NAME,
# it makes a bundle more; TARGET may be of another folder.
#
# A FOLDER is a graph, as tessera.export() writes it (graph.txt with its kernels and arrays); its name is the graph's.
# Its part of a header takes Vulkan's headers.
#
# A C++ source (.cpp, .cc, .cxx) includes <tessera/ahead.hpp> and defines tessera_kernels(), which adds its kernels. It
# is no part of TARGET: a program of its own is made of it, with Tessera::tessera and LIBRARIES, and run during the
# build; it writes the kernels as text to kernels/TARGET/name_cpp/ of the build folder. So where CMake cross-compiles,
# that program needs CMAKE_CROSSCOMPILING_EMULATOR; .tir files do not.
function(tessera_add_kernels target)
  cmake_parse_arguments(PARSE_ARGV 1 K "EMBED" "NAME;NAMESPACE" "FILES;TARGETS;LIBRARIES")
  set(files ${K_UNPARSED_ARGUMENTS} ${K_FILES})
  if(NOT TARGET ${target})
    message(FATAL_ERROR "tessera_add_kernels: there is no target ${target}")
  endif()
  get_target_property(type ${target} TYPE)
  get_target_property(imported ${target} IMPORTED)
  get_target_property(alias ${target} ALIASED_TARGET)
  if(imported OR alias OR NOT type MATCHES "^(EXECUTABLE|(STATIC|SHARED|MODULE|OBJECT)_LIBRARY)$")
    message(FATAL_ERROR "tessera_add_kernels(${target}): that target compiles nothing here: give the executable or "
      "library whose sources include the header")
  endif()
  if(K_KEYWORDS_MISSING_VALUES)
    message(FATAL_ERROR "tessera_add_kernels(${target}): there is no value after ${K_KEYWORDS_MISSING_VALUES}")
  endif()
  if(NOT files)
    message(FATAL_ERROR "tessera_add_kernels(${target}): no kernels (.tir files, C++ sources or folders of graphs) are "
      "given")
  endif()
  if(NOT TARGET Tessera::cli)
    message(FATAL_ERROR "tessera_add_kernels(${target}): this Tessera was built without its command line: install "
      "CLI11 (Debian: libcli11-dev) and build it again")
  endif()
  if(NOT K_NAME)
    set(K_NAME ${target}_kernels)
  endif()
  string(REGEX REPLACE "[^A-Za-z0-9_.+-]" "_" rule "${target}+${K_NAME}")
  if(TARGET ${rule})
    message(FATAL_ERROR "tessera_add_kernels(${target}): it has kernels called ${K_NAME} already: give all files to "
      "one call, or these another NAME")
  endif()
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/kernels/${target})
  set(options "")
  if(K_NAMESPACE)
    list(APPEND options --namespace ${K_NAMESPACE})
  endif()
  if(K_TARGETS)
    string(REPLACE ";" "," list "${K_TARGETS}")
    list(APPEND options --targets ${list})
  endif()
  if(K_EMBED)
    list(APPEND options --embed)
  endif()
  # By names relative to the source folder, so that neither bundle nor headers say where that is.
  set(names "")
  set(depends "")
  set(stems "")
  foreach(file IN LISTS files)
    get_filename_component(path ${file} ABSOLUTE)
    file(RELATIVE_PATH name ${CMAKE_CURRENT_SOURCE_DIR} ${path})
    if(file MATCHES "\\.(cpp|cc|cxx|c\\+\\+|C)$")
      get_filename_component(stem ${file} NAME_WE)
      string(REGEX REPLACE "[^A-Za-z0-9_-]" "_" stem "${stem}")
      while(stem IN_LIST stems)
        string(APPEND stem "_")
      endwhile()
      list(APPEND stems ${stem})
      tessera_trace_kernels(${target} ${name} ${path} ${rule}+${stem} ${folder}/${K_NAME}_cpp/${stem} "${K_LIBRARIES}")
      list(APPEND names ${folder}/${K_NAME}_cpp/${stem}.kernels)
      list(APPEND depends ${folder}/${K_NAME}_cpp/${stem}.kernels)
    else()
      list(APPEND names ${name})
      if(IS_DIRECTORY ${path})  # a graph
        file(GLOB parts CONFIGURE_DEPENDS ${path}/graph.txt ${path}/*.tir ${path}/*.npy)
        list(APPEND depends ${parts})
      else()
        list(APPEND depends ${path})
      endif()
    endif()
  endforeach()
  if(K_LIBRARIES AND NOT stems)
    message(FATAL_ERROR "tessera_add_kernels(${target}): LIBRARIES are given but no C++ source that they could be "
      "linked to: leave them out")
  endif()
  file(MAKE_DIRECTORY ${folder})
  set(bundle ${folder}/${K_NAME}.tsb)
  set(header ${folder}/${K_NAME}.hpp)
  set(c_header ${folder}/${K_NAME}_c.h)
  add_custom_command(OUTPUT ${bundle} ${header} ${c_header} DEPENDS ${depends} Tessera::cli
    WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} VERBATIM COMMENT "Compiling kernels: ${K_NAME}.tsb"
    COMMAND Tessera::cli bundle --quiet ${names} -o ${bundle} --header ${header} --c-header ${c_header} ${options}
    # what has not changed is not written, and would be made again each time
    COMMAND ${CMAKE_COMMAND} -E touch ${bundle} ${header} ${c_header})
  # A target of its own: of another folder's target these could not be sources.
  add_custom_target(${rule} DEPENDS ${bundle} ${header} ${c_header})
  add_dependencies(${target} ${rule})
  target_include_directories(${target} PRIVATE ${folder})
  set(${K_NAME}_BUNDLE ${bundle} PARENT_SCOPE)
endfunction()

# The program `tool` of the C++ source `path`, called `name` in messages, which writes ${folder}.kernels and the
# kernels' texts into ${folder}.
function(tessera_trace_kernels target name path tool folder libraries)
  if(NOT CMAKE_CXX_COMPILER_LOADED)
    message(FATAL_ERROR "tessera_add_kernels(${target}): ${name} is C++, which this project does not compile: give "
      "project() the language CXX")
  endif()
  if(CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR)
    message(FATAL_ERROR "tessera_add_kernels(${target}): ${name} is compiled and run during the build, and a program "
      "for ${CMAKE_SYSTEM_NAME} on ${CMAKE_SYSTEM_PROCESSOR} does not run here: "
      "set CMAKE_CROSSCOMPILING_EMULATOR, or build for this machine first and give the .tir files that it writes to "
      "kernels/${target} of the build folder instead of ${name}")
  endif()
  if(NOT TARGET Tessera::tessera)
    message(FATAL_ERROR "tessera_add_kernels(${target}): ${name} is C++, and this Tessera was built without the "
      "library tessera, which traces it")
  endif()
  get_filename_component(parent ${folder} DIRECTORY)
  file(CONFIGURE OUTPUT ${parent}/main.cpp CONTENT
    "#include <tessera/ahead.hpp>
int main(int argc, char** argv) { return tessera::trace_kernels(tessera_kernels, argc, argv); }
")
  add_executable(${tool} EXCLUDE_FROM_ALL ${path} ${parent}/main.cpp)
  get_filename_component(stem ${folder} NAME)
  set_target_properties(${tool} PROPERTIES OUTPUT_NAME ${stem}.trace RUNTIME_OUTPUT_DIRECTORY ${parent} UNITY_BUILD OFF)
  target_link_libraries(${tool} PRIVATE Tessera::tessera ${libraries})
  # Lines of kernels are in the bundle and in its headers, and are to say nothing of the machine. Of options that fit,
  # compilers take the last.
  if(NOT MSVC)
    get_target_property(includes Tessera::tessera INTERFACE_INCLUDE_DIRECTORIES)
    list(FILTER includes EXCLUDE REGEX "INSTALL_INTERFACE")
    foreach(include IN LISTS includes)
      target_compile_options(${tool} PRIVATE -fmacro-prefix-map=${include}/=)
    endforeach()
    target_compile_options(${tool} PRIVATE -fmacro-prefix-map=${CMAKE_CURRENT_SOURCE_DIR}/=
      -fmacro-prefix-map=${path}=${name})
    file(RELATIVE_PATH relative ${CMAKE_BINARY_DIR} ${path})  # as ccache names the source where CCACHE_BASEDIR is set
    target_compile_options(${tool} PRIVATE -fmacro-prefix-map=${relative}=${name})
  endif()
  add_custom_command(OUTPUT ${folder}.kernels DEPENDS ${tool} VERBATIM COMMENT "Tracing kernels: ${name}"
    COMMAND ${tool} ${name} ${folder}.kernels ${folder})
endfunction()
