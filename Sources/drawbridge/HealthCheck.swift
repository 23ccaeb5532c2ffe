import ByteStreams
import Configuration
import Gateway
import Glibc
import Reactor

/// Sends `GET /readyz` to the management listener over a plain blocking socket.
enum HealthCheck {
  private static let timeoutSeconds = 3

  static func run(_ outcome: ConfigurationLoader.Outcome) -> Int32 {
    let key = "listeners.management"
    guard let listener = outcome.settings.listeners.management.first else {
      Terminal.complain("drawbridge: '\(key)' is empty: give at least one address")
      return DrawbridgeCommand.ExitCode.configuration
    }
    guard listener.port != 0 else {
      let problem = SettingProblem(
        key, .item(0), "a health check needs the address in use, with its port: \(ListenerAddress.expectation)")
      for line in outcome.errors(with: SettingProblems([problem])).errors { Terminal.complain("drawbridge: \(line)") }
      return DrawbridgeCommand.ExitCode.configuration
    }
    let address = reachable(listener)
    guard let answer = ask(address) else {
      Terminal.complain(
        "drawbridge: no response from \(address): is the gateway running with this management listener?")
      return DrawbridgeCommand.ExitCode.unavailable
    }
    let isReady = answer.hasPrefix("HTTP/1.1 200 ")
    Terminal.print(answer.split(whereSeparator: \.isNewline).last.map(String.init) ?? "")
    return isReady ? DrawbridgeCommand.ExitCode.ok : DrawbridgeCommand.ExitCode.unavailable
  }

  /// Returns the loopback address for a listener on the unspecified address.
  private static func reachable(_ address: SocketAddress) -> SocketAddress {
    switch address {
    case .ip(.ipv4(0), let port): .ipv4(0x7F00_0001, port: port)
    case .ip(.ipv6(0, 0, let scope), let port): .ipv6(high: 0, low: 1, port: port, scope: scope)
    case .ip, .unix: address
    }
  }

  private static func ask(_ address: SocketAddress) -> String? {
    let descriptor = socket(address.family, Int32(SOCK_STREAM.rawValue), 0)
    guard descriptor >= 0 else { return nil }
    defer { close(descriptor) }
    var timeout = timeval(tv_sec: timeoutSeconds, tv_usec: 0)
    let size = socklen_t(MemoryLayout<timeval>.size)
    unsafe setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &timeout, size)
    unsafe setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &timeout, size)
    guard unsafe address.withKernelAddress({ unsafe connect(descriptor, $0, $1) }) == 0 else { return nil }
    let request = Array("GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".utf8)
    guard
      unsafe request.withUnsafeBytes({ unsafe send(descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) })
        == request.count
    else { return nil }
    var answer: [UInt8] = []
    var piece = [UInt8](repeating: 0, count: 4096)
    while answer.count < 64 * 1024 {
      let count = unsafe recv(descriptor, &piece, piece.count, 0)
      guard count > 0 else { break }
      answer += piece[..<count]
    }
    return answer.isEmpty ? nil : String(decoding: answer, as: UTF8.self)
  }
}
