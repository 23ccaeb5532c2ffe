// What Glibc's module map does not show to Swift: epoll, eventfd, netlink, and a few socket options behind macros.
#ifndef CLINUX_H
#define CLINUX_H

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <arpa/inet.h>
#include <netdb.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <semaphore.h>
#include <stdint.h>
#include <sys/types.h>

// epoll_event is packed on x86-64; these keep the layout a matter of C.
static inline struct epoll_event clinux_epoll_event(uint32_t events, uint64_t data) {
  struct epoll_event event;
  event.events = events;
  event.data.u64 = data;
  return event;
}
static inline uint64_t clinux_epoll_data(const struct epoll_event *event) { return event->data.u64; }

// Plain numbers of the type that `events` has; the system's are an enumeration.
#define CLINUX_EPOLLIN 0x001u
#define CLINUX_EPOLLOUT 0x004u
#define CLINUX_EPOLLERR 0x008u
#define CLINUX_EPOLLHUP 0x010u
#define CLINUX_EPOLLRDHUP 0x2000u
#define CLINUX_EPOLLET 0x80000000u

// Processors this process may run on (its affinity mask), or 1.
int clinux_available_processors(void);
// accept4(2): the new descriptor is non-blocking and closed on exec. The result is accept's.
int clinux_accept(int listener, struct sockaddr *address, socklen_t *size);
// Bytes in a socket's send buffer: of TCP, those that the peer has not acknowledged (SIOCOUTQ, tcp(7)). -1: not known.
int clinux_unacknowledged_bytes(int socket);
// sem_clockwait(3) on the monotonic clock: waits until that moment, in seconds and nanoseconds.
int clinux_semaphore_wait(sem_t *semaphore, long seconds, long nanoseconds);
// The text of an errno, cut to `size` bytes and always terminated.
void clinux_error_text(int code, char *text, size_t size);
// Gives the calling thread a name of at most 15 bytes, as `top -H` shows it.
void clinux_set_thread_name(const char *name);
// Starts `arguments[0]`, looked for in PATH, in a process group of its own: without input, with no descriptor of ours but standard
// error, with no signal blocked. `*output` reads what it prints. 0, or an errno.
int clinux_spawn(char *const arguments[], pid_t *process, int *output);

#endif
