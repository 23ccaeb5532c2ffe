import ByteStreams
import Configuration
import Gateway
import Glibc
import Host

/// Sends `GET /readyz` to the management listener over a plain blocking socket.
enum HealthCheck {
  static let command = Command(
    "healthcheck",
    summary: "check whether a running gateway is ready",
    purpose: "check whether a running gateway is ready. For the health checks of containers.",
    examples: ["drawbridge healthcheck", "drawbridge healthcheck --management 127.0.0.1:9090"],
    text: """
      Sends GET /readyz to the first management listener of the configuration, read as serve reads it, and prints the
      last line of the response. The listener may be a Unix socket. Waits at most three seconds for each step.
      """,
    flags: ConfigurationSource.flags(["management"]),
    exitCodes: [
      Command.ExitCode(ExitCode.ok, "ready"), .usage, .noFile,
      Command.ExitCode(ExitCode.unavailable, "not ready, or no response"), .configuration,
    ]
  ) { (arguments) throws(UsageError) in
    ConfigurationReader.withSettings(try ConfigurationSource(arguments)) { run($0) }
  }

  private static let timeoutSeconds = 3

  private static func run(_ outcome: ConfigurationLoader.Outcome) -> Int32 {
    let key = "listeners.management"
    guard let listener = outcome.settings.listeners.management.first else {
      Terminal.printError("drawbridge: '\(key)' is empty: set at least one address")
      return ExitCode.configuration
    }
    guard listener.port != 0 else {
      let problem = SettingProblem(
        key, .item(0), "the health check cannot connect to port 0: use the port that the gateway logged")
      for line in outcome.errors(with: SettingProblems([problem])).errors { Terminal.printError("drawbridge: \(line)") }
      return ExitCode.configuration
    }
    let address = connectable(listener)
    guard let response = readiness(from: address) else {
      Terminal.printError(
        "drawbridge: no response from \(address): check that the gateway is running with this management listener, or name another with --management"
      )
      return ExitCode.unavailable
    }
    let isReady = response.hasPrefix("HTTP/1.1 200 ")
    Terminal.print(response.split(whereSeparator: \.isNewline).last.map(String.init) ?? "")
    return isReady ? ExitCode.ok : ExitCode.unavailable
  }

  /// Returns an address to which this process can connect: for the unspecified address, the loopback address.
  private static func connectable(_ address: SocketAddress) -> SocketAddress {
    switch address {
    case .ip(.ipv4(0), let port): .ipv4(0x7F00_0001, port: port)
    case .ip(.ipv6(0, 0, let scope), let port): .ipv6(high: 0, low: 1, port: port, scope: scope)
    case .ip, .unix: address
    }
  }

  private static func readiness(from address: SocketAddress) -> String? {
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
    var response: [UInt8] = []
    var buffer = [UInt8](repeating: 0, count: 4096)
    while response.count < 64 * 1024 {
      let count = unsafe recv(descriptor, &buffer, buffer.count, 0)
      guard count > 0 else { break }
      response += buffer[..<count]
    }
    return response.isEmpty ? nil : String(decoding: response, as: UTF8.self)
  }
}
