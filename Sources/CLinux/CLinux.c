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

void clinux_set_thread_name(const char *name) { pthread_setname_np(pthread_self(), name); }
