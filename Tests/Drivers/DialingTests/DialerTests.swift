import ByteStreams
import Dialing
import HTTPCodec
import Host
import LoopbackSupport
import ProxyCodec
import Reactor
import Synchronization
import Testing

@Suite(.serialized) struct DialerTests {
  @Test func opensATransportToAnAddress() async throws {
    let peer = try ScriptedPeer { _ = $0.readAll() }
    let run = try DialRun(to: peer.port)
    try await run.until { $0.outcome != nil }
    #expect(run.state == DialRun.State(phases: [.connecting], outcome: "open"))
    run.stop()
    peer.stop()
  }

  @Test func reportsARefusedConnection() async throws {
    let run = try DialRun(to: 1)
    try await run.until { $0.outcome != nil }
    #expect(run.state.phases == [.connecting])
    #expect(run.state.outcome?.hasPrefix("connecting: network") == true, "\(run.state)")
    run.stop()
  }

  @Test func opensATunnelAndKeepsBytesReceivedThroughIt() async throws {
    let proxy = try ScriptedPeer(answering: "HTTP/1.1 200 OK\r\n\r\nearly")
    let run = try DialRun(to: 9, through: "http://127.0.0.1:\(proxy.port)")
    try await run.until { $0.outcome != nil }
    #expect(run.state == DialRun.State(phases: [.connecting, .proxying], outcome: "open", received: "early"))
    run.stop()
    proxy.stop()
  }

  @Test func reportsTheResponseOfAProxyThatRefuses() async throws {
    let proxy = try ScriptedPeer(answering: "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
    let run = try DialRun(to: 9, through: "http://127.0.0.1:\(proxy.port)")
    try await run.until { $0.outcome != nil }
    #expect(run.state.outcome == "proxying: proxy 403 no")
    run.stop()
    proxy.stop()
  }

  @Test func endsItsWaitWhenItIsCancelled() async throws {
    let proxy = try ScriptedPeer { _ = $0.readAll() }
    let run = try DialRun(to: 9, through: "http://127.0.0.1:\(proxy.port)")
    try await run.until { $0.phases.contains(.proxying) }
    run.cancel()
    try await run.until { $0.outcome != nil }
    #expect(run.state.outcome == "cancelled")
    run.stop()
    proxy.stop()
  }
}

extension ScriptedPeer {
  /// Responds to each request with `text`, and closes the connection.
  fileprivate convenience init(answering text: String) throws {
    try self.init { client in
      guard client.readHead() != nil else { return }
      client.send(text)
    }
  }

  fileprivate var port: UInt16 { address.port ?? 0 }
}

/// Runs one dial on its own loop.
private final class DialRun: Sendable {
  struct State: Equatable, Sendable {
    var phases: [DialPhase] = []
    var outcome: String?
    var received = ""
  }

  private let shared = Mutex(State())
  private let loop: EventLoop

  init(to port: UInt16, through proxy: String? = nil) throws {
    loop = try EventLoop(index: 0)
    let proxy = try proxy.map { try ProxyURL($0) }
    loop.submit { context in
      let dial = DialTask(port, proxy, context) { change in self.shared.withLock { change(&$0) } }
      context.userObject = dial
      return dial
    }
  }

  var state: State { shared.withLock { $0 } }

  func cancel() {
    loop.submit { context in
      (context.userObject as? DialTask)?.cancellation.cancel()
      return nil
    }
  }

  func until(_ fact: (State) -> Bool) async throws {
    try await LoopbackSupport.until("\(state)") { fact(state) }
  }

  func stop() {
    loop.stop()
    loop.join()
  }
}

private final class DialTask: LoopTask {
  let cancellation = Cancellation()
  private let port: UInt16
  private let proxy: ProxyURL?
  private let loop: LoopContext
  private let change: ((inout DialRun.State) -> Void) -> Void

  init(
    _ port: UInt16, _ proxy: ProxyURL?, _ loop: LoopContext,
    change: @escaping ((inout DialRun.State) -> Void) -> Void
  ) {
    self.port = port
    self.proxy = proxy
    self.loop = loop
    self.change = change
  }

  func run() async {
    let destination = DialDestination(
      host: "127.0.0.1", port: port, authority: "127.0.0.1:\(port)", proxy: proxy, tls: nil,
      userTimeout: .seconds(30))
    var input = ByteQueue()
    do throws(DialError) {
      let dialer = NetworkDialer(resolver: Resolver(), loop: loop)
      let transport = try await dialer.dial(destination, cancellation, &input) { phase in
        change { $0.phases.append(phase) }
      }
      transport.close()
      let received = input.bytes.text()
      change {
        $0.received = received
        $0.outcome = "open"
      }
    } catch {
      let text =
        switch error {
        case .cancelled: "cancelled"
        case .failed(let failure):
          "\(failure.phase.rawValue): \(failure.reason)"
            + (failure.refusal.map { " \($0.head.status) \($0.body)" } ?? "")
        }
      change { $0.outcome = text }
    }
  }
}
