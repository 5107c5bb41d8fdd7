# Writes the header OUTPUT with a hash of the sources that decide what compilation makes: those of engine and codegen
# under ROOT. Run at build time, whenever one of them has changed, so that files of another compiler are never taken for
# this one's.
file(GLOB_RECURSE sources ${ROOT}/engine/*.cpp ${ROOT}/engine/*.h ${ROOT}/engine/*.def ${ROOT}/codegen/*.cpp
  ${ROOT}/codegen/*.h)
list(SORT sources)
set(hashes "${VERSION}")
foreach(source IN LISTS sources)
  file(SHA256 ${source} hash)
  string(APPEND hashes "${hash}")
endforeach()
string(SHA256 id "${hashes}")
file(WRITE ${OUTPUT}
  "// Generated: runtime/cmake/build_id.cmake.
#pragma once
namespace tessera {
inline constexpr const char* kBuildId = \"${VERSION} ${id}\";
}
")
