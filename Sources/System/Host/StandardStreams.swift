import Glibc

/// Descriptors 0 to 2.
package enum StandardStreams {
  /// Opens /dev/null for each standard stream that was closed when the process started. Without this, the first socket
  /// or file would get the number of the stream, and log lines would be written to it. Must be called first in `main`.
  package static func openMissing() {
    for descriptor in [STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO] where fcntl(descriptor, F_GETFD) < 0 {
      // open(2) returns the lowest free number, and the lower numbers are open by now.
      let opened = unsafe open("/dev/null", O_RDWR)
      precondition(opened == descriptor || opened < 0, "descriptor \(descriptor) was opened by another thread")
    }
  }
}
