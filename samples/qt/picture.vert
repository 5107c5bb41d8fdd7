#version 460
layout(location = 0) out vec2 at;
void main() {
  at = vec2((gl_VertexIndex << 1) & 2, gl_VertexIndex & 2);
  gl_Position = vec4(at * 2 - 1, 0, 1);
}
