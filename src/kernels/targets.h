// Which Highway targets the kernels are compiled for. Comes before every Highway header.
#pragma once

// On x86 the least processor has SSE4 (2008): Highway's scalar target has vectors of one element,
// which cannot hold the panels' quads.
#if defined(__x86_64__)
#define HWY_BASELINE_TARGETS HWY_SSE4
#endif
// AVX3_DL is AVX-512 with VNNI, which multiplies bytes twice as fast.
#define HWY_WANT_AVX3_DL
// The panels are made for vectors of 16 and 32 bytes, which on Arm is NEON; SVE has no fixed size.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
