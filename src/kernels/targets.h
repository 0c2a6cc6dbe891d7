// Which Highway targets the kernels are compiled for. Comes before every Highway header.
#pragma once

// The x86 baseline is SSE4 (2008): Highway's scalar target has one-element vectors, which cannot
// hold the panels' quads.
#if defined(__x86_64__)
#define HWY_BASELINE_TARGETS HWY_SSE4
#endif
// AVX3_DL is AVX-512 with VNNI, which multiplies bytes twice as fast.
#define HWY_WANT_AVX3_DL
// Panels are laid out for vectors of 16 and 32 bytes. On Arm that is NEON; SVE has no fixed size.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
