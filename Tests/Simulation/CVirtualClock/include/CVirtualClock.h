#pragma once
#include <stdint.h>

// A clock and random numbers for one thread at a time. In a program that is linked with this library, they replace the
// kernel's: clock_gettime(2) of the monotonic, boot and wall clocks, getentropy(3) and getrandom(2). Other threads use
// the clocks and random numbers of the kernel.

// From now on, the calling thread has this time, in nanoseconds, and random numbers from this seed.
void virtual_clock_begin(uint64_t nanoseconds, uint64_t seed);
void virtual_clock_set(uint64_t nanoseconds);
// From now on, the calling thread uses the kernel again.
void virtual_clock_end(void);
