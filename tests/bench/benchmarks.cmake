# The benchmarks, for tests/bench/run: included by CMakeLists.txt, and part of no test.

# ---- the interpreter's benchmark: against JAX, where a Python has it
add_executable(bench_interpreter EXCLUDE_FROM_ALL tests/bench/interpreter/main.cpp)
set_target_properties(bench_interpreter PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
target_compile_options(bench_interpreter PRIVATE ${warnings})
target_link_libraries(bench_interpreter PRIVATE tessera_engine)

# ---- a bundle's first call, timed against Vulkan by hand
if(TARGET tessera AND TARGET Vulkan::Vulkan)
  add_executable(bench_bundle EXCLUDE_FROM_ALL tests/bench/bundle/main.cpp)
  set_target_properties(bench_bundle PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  target_compile_options(bench_bundle PRIVATE ${warnings})
  target_link_libraries(bench_bundle PRIVATE tessera Vulkan::Vulkan)
endif()

# ---- the kernels of samples/kernels, timed
if(TARGET tessera)
  add_executable(bench_kernels EXCLUDE_FROM_ALL tests/bench/kernels/main.cpp)
  set_target_properties(bench_kernels PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  target_compile_options(bench_kernels PRIVATE ${warnings})
  target_link_libraries(bench_kernels PRIVATE tessera)
endif()

# ---- the benchmark of recording into a host's command buffer
add_executable(bench_recording EXCLUDE_FROM_ALL tests/bench/recording/main.cpp)
set_target_properties(bench_recording PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
target_compile_options(bench_recording PRIVATE ${warnings})
target_link_libraries(bench_recording PRIVATE tessera)

# ---- what a call costs beside its kernel
if(TARGET tessera AND NOT WIN32)
  add_executable(bench_call EXCLUDE_FROM_ALL tests/bench/call/main.cpp)
  set_target_properties(bench_call PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  target_compile_options(bench_call PRIVATE ${warnings})
  target_include_directories(bench_call SYSTEM PRIVATE ${VULKAN_INCLUDE_DIR} ${VMA_INCLUDE_DIR})
  target_link_libraries(bench_call PRIVATE tessera)
endif()

# ---- what the device's compiler makes of kernels and of hand-written shaders
if(TARGET tessera AND TARGET Vulkan::Vulkan)
  add_executable(bench_gpu tests/bench/gpu/ask.cpp)
  set_target_properties(bench_gpu PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  target_compile_options(bench_gpu PRIVATE ${warnings})
  target_include_directories(bench_gpu SYSTEM PRIVATE ${NLOHMANN_JSON_INCLUDE_DIR})
  target_link_libraries(bench_gpu PRIVATE tessera Vulkan::Vulkan)
endif()

# ---- the same kernels and shaders, timed on a GPU
if(TARGET tessera AND NOT WIN32)
  file(GLOB bench_gpu_time_sources CONFIGURE_DEPENDS tests/bench/gpu/time/*.cpp)
  add_executable(bench_gpu_time EXCLUDE_FROM_ALL ${bench_gpu_time_sources})
  set_target_properties(bench_gpu_time PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  target_compile_options(bench_gpu_time PRIVATE ${warnings})
  target_include_directories(bench_gpu_time SYSTEM PRIVATE ${VULKAN_INCLUDE_DIR} ${VMA_INCLUDE_DIR}
    ${NLOHMANN_JSON_INCLUDE_DIR})
  target_link_libraries(bench_gpu_time PRIVATE tessera)
endif()

# ---- graphs, against Vulkan by hand
if(TARGET tessera)
  add_executable(bench_graph EXCLUDE_FROM_ALL tests/bench/graph/main.cpp)
  set_target_properties(bench_graph PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  target_compile_options(bench_graph PRIVATE ${warnings})
  target_include_directories(bench_graph SYSTEM PRIVATE ${VULKAN_INCLUDE_DIR} ${VMA_INCLUDE_DIR})
  target_link_libraries(bench_graph PRIVATE tessera)
endif()

# ---- the benchmark: tests/bench against the hand-written shaders, one header of SPIR-V words per variant
file(GLOB bench_sources CONFIGURE_DEPENDS tests/bench/*.cpp)
if(bench_sources AND TARGET tessera)
  set(shader_headers "")
  function(tessera_shader name source)  # then: macros, as -DNAME=VALUE
    set(header ${PROJECT_BINARY_DIR}/shaders/${name}.h)
    add_custom_command(OUTPUT ${header} DEPENDS ${PROJECT_SOURCE_DIR}/shaders/${source}.comp VERBATIM
      COMMAND ${GLSLANG} -V --target-env vulkan1.2 --quiet --vn ${name} ${ARGN} -o ${header}
        ${PROJECT_SOURCE_DIR}/shaders/${source}.comp)
    set(shader_headers ${shader_headers} ${header} PARENT_SCOPE)
  endfunction()
  tessera_shader(copy copy)
  tessera_shader(add add)
  tessera_shader(iota iota)
  tessera_shader(matmul_naive matmul_naive)
  tessera_shader(matmul_tiled matmul_tiled)
  tessera_shader(matmul_lanes_16 matmul_lanes -DROWS=16 -DM=1024 -DN=1024 -DK=1024)
  tessera_shader(matmul_lanes_32 matmul_lanes -DROWS=32 -DM=1024 -DN=1024 -DK=1024)
  tessera_shader(matmul_lanes_16_gelu matmul_lanes -DROWS=16 -DM=1024 -DN=1024 -DK=1024 -DGELU)
  tessera_shader(matmul_lanes_32_gelu matmul_lanes -DROWS=32 -DM=1024 -DN=1024 -DK=1024 -DGELU)
  tessera_shader(matmul_lanes_16_500 matmul_lanes -DROWS=16 -DM=500 -DN=700 -DK=960)
  tessera_shader(matmul_lanes_32_500 matmul_lanes -DROWS=32 -DM=500 -DN=700 -DK=960)
  tessera_shader(softmax_8 softmax -DWIDTH=8)
  tessera_shader(softmax_32 softmax -DWIDTH=32)
  tessera_shader(mandelbrot mandelbrot)
  tessera_shader(blur blur)
  add_custom_target(bench_shaders ALL DEPENDS ${shader_headers})  # .ci/run's check with clang needs the headers
  add_executable(bench EXCLUDE_FROM_ALL ${bench_sources} ${shader_headers})
  add_dependencies(bench bench_shaders)
  set_target_properties(bench PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  target_compile_options(bench PRIVATE ${warnings})
  target_include_directories(bench PRIVATE ${PROJECT_BINARY_DIR})
  target_link_libraries(bench PRIVATE tessera)
endif()
