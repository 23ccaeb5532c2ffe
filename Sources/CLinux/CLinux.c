#define _GNU_SOURCE
#include "CLinux.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sched.h>

int clinux_available_processors(void) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  int count = CPU_COUNT(&set);
  return count > 0 ? count : 1;
}

int clinux_accept(int listener, struct sockaddr *address, socklen_t *size) {
  return accept4(listener, address, size, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

void clinux_error_text(int code, char *text, size_t size) {
  char buffer[128];
  snprintf(text, size, "%s", strerror_r(code, buffer, sizeof buffer));
}

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WATCHED 1
void __tsan_acquire(void *);
void __tsan_release(void *);
#endif
#endif

void clinux_lock_taken(const void *lock) {
#ifdef WATCHED
  __tsan_acquire((void *)lock);
#else
  (void)lock;
#endif
}

void clinux_lock_released(const void *lock) {
#ifdef WATCHED
  __tsan_release((void *)lock);
#else
  (void)lock;
#endif
}

void clinux_set_thread_name(const char *name) { pthread_setname_np(pthread_self(), name); }
