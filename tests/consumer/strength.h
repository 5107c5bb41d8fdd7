// What filters.cpp includes: a change of it is a change of the kernels.
#pragma once
inline constexpr float kStrength = 2;
