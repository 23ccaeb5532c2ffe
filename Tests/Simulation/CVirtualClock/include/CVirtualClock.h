#pragma once
#include <stdint.h>

// A clock and random numbers for one thread at a time. Programs that are linked with this have them in place of the kernel's: clock_gettime(2) of the monotonic,
// boot and wall clocks, getentropy(3) and getrandom(2). Other threads keep those of the kernel.

// The calling thread has this time from now on, in nanoseconds, and random numbers of this seed.
void virtual_clock_begin(uint64_t nanoseconds, uint64_t seed);
void virtual_clock_set(uint64_t nanoseconds);
// The calling thread has the kernel's time again.
void virtual_clock_end(void);
