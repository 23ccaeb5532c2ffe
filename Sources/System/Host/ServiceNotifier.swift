import ByteStreams
import CLinux
import Glibc

/// Reports the state of the process to a supervisor (sd_notify(3), `Type=notify-reload` of systemd).
package struct ServiceNotifier: Sendable {
  package enum State: Sendable {
    /// The process has started, or its reload is complete.
    case ready
    case reloading
    case stopping
  }

  /// A path, or `@` and the name of an abstract socket; nil if there is no supervisor to notify.
  private let address: String?

  package static var none: ServiceNotifier { ServiceNotifier(address: nil) }

  /// Takes the address from the environment and removes it there, since it is not meant for children. Must be called
  /// before any thread is started.
  package static func take() -> ServiceNotifier {
    let address = SystemFile.environment()["NOTIFY_SOCKET"]
    unsafe _ = unsetenv("NOTIFY_SOCKET")
    guard let address, address.hasPrefix("/") || address.hasPrefix("@"),
      (2...SocketAddress.longestPath).contains(address.utf8.count)
    else { return ServiceNotifier(address: nil) }
    return ServiceNotifier(address: address)
  }

  /// Sends the state. Does not block, so a supervisor that does not read misses the state.
  package func notify(_ state: State) {
    guard let address else { return }
    let text =
      switch state {
      case .ready: "READY=1"
      case .reloading: "RELOADING=1\nMONOTONIC_USEC=\(SystemCall.monotonicNanoseconds() / 1_000)"
      case .stopping: "STOPPING=1"
      }
    let descriptor = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue) | O_CLOEXEC | O_NONBLOCK, 0)
    guard descriptor >= 0 else { return }
    defer { SystemCall.close(descriptor) }
    var target = sockaddr_un()
    target.sun_family = sa_family_t(AF_UNIX)
    var name = Array(address.utf8)
    // The name of an abstract socket begins with a NUL (unix(7)).
    if name[0] == UInt8(ascii: "@") { name[0] = 0 }
    unsafe withUnsafeMutableBytes(of: &target.sun_path) { unsafe $0.copyBytes(from: name) }
    let size = socklen_t(2 + name.count)
    let bytes = Array(text.utf8)
    unsafe withUnsafePointer(to: &target) { pointer in
      unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        unsafe _ = sendto(descriptor, bytes, bytes.count, Int32(MSG_NOSIGNAL), $0, size)
      }
    }
  }
}
