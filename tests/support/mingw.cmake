# Toolchain: Windows, x86-64, by Debian's g++-mingw-w64-x86-64-posix (cmake --preset mingw). Programs run under Wine
# where there is one.
set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(CMAKE_C_COMPILER x86_64-w64-mingw32-gcc-posix)
set(CMAKE_CXX_COMPILER x86_64-w64-mingw32-g++-posix)
set(CMAKE_FIND_ROOT_PATH /usr/x86_64-w64-mingw32)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
# no DLLs of g++'s beside each program, and as much stack as on Linux
set(CMAKE_EXE_LINKER_FLAGS_INIT "-static -s -Wl,--stack,8388608")
set(CMAKE_SHARED_LINKER_FLAGS_INIT "-static -s")
set(CMAKE_CXX_FLAGS_INIT "-Wa,-mbig-obj")       # templates make more sections than the old format counts

# Headers that are the same for every system (Vulkan's, SPIR-V's, VMA, JSON, doctest, CLI11) come from this one.
# /usr/include itself would bring its own C library's: so they are linked, one by one, into a folder beside this build.
set(tessera_host_headers ${CMAKE_CURRENT_LIST_DIR}/../../build-mingw/host-headers)
file(MAKE_DIRECTORY ${tessera_host_headers})
foreach(header vulkan vk_video spirv nlohmann doctest CLI vk_mem_alloc.h vma)
  if(EXISTS /usr/include/${header} AND NOT EXISTS ${tessera_host_headers}/${header})
    file(CREATE_LINK /usr/include/${header} ${tessera_host_headers}/${header} SYMBOLIC)
  endif()
endforeach()
list(APPEND CMAKE_FIND_ROOT_PATH ${tessera_host_headers})
set(CMAKE_INCLUDE_PATH ${tessera_host_headers})

find_program(TESSERA_WINE NAMES wine64 wine PATHS /usr/lib/wine)
if(TESSERA_WINE)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${TESSERA_WINE})
endif()
