import ByteStreams
import Deflate
import TestSupport
import Testing

@testable import WebSocketCodec

/// One test per attack that a limit stops.
@Suite struct LimitTests {
  private func limits(_ change: (inout WebSocketLimits) -> Void) -> WebSocketLimits {
    var limits = WebSocketLimits()
    change(&limits)
    return limits
  }

  /// Attack: a header that announces 2^62 bytes. The connection refuses the header at once, and allocates nothing. If
  /// the limit allows this length, memory still grows only with the received bytes.
  @Test func allocatesNothingForALengthThatIsOnlyAnnounced() throws {
    let header: [UInt8] = [0x82, 127, 0x40, 0, 0, 0, 0, 0, 0, 0]
    #expect(transcript([header]) == ["error 1009"])
    var connection = WebSocketConnection(role: .client, limits: limits { $0.messageBytes = .max })
    connection.receive(header.span)
    connection.receive([UInt8](repeating: 0, count: 1000).span)
    #expect(try connection.nextEvent() == nil)
    let allocated = connection.allocatedBytes
    #expect(allocated <= 4096)
    // Two such lengths in one message do not overflow the sum.
    let fragments = Frames.frame(2, [1], final: false) + [0x80, 127, 0x7F] + [UInt8](repeating: 0xFF, count: 7)
    #expect(transcript([fragments], limits: limits { $0.messageBytes = .max }) == ["error 1009"])
  }

  /// Attack: an endless message, in one frame or in many.
  @Test func refusesAMessageAboveItsLimitByTheFrameHeader() {
    let limits = limits { $0.messageBytes = 100 }
    let whole = Frames.frame(2, .init(repeating: 1, count: 100))
    #expect(transcript([whole], limits: limits).count == 1)
    let header = Array(Frames.frame(2, .init(repeating: 1, count: 101)).prefix(2))
    expectEvents(["error 1009"], from: header) { transcript($0, limits: limits) }
    let fragments =
      Frames.frame(2, .init(repeating: 1, count: 60), final: false)
      + Frames.frame(0, .init(repeating: 1, count: 40), final: false)
    expectEvents([], from: fragments) { transcript($0, limits: limits) }
    expectEvents(["error 1009"], from: fragments + [0x80, 0x01]) { transcript($0, limits: limits) }
  }

  /// Attack: endless empty fragments, which add no bytes to the message.
  @Test func refusesAMessageOfTooManyFragments() {
    let limits = limits { $0.fragments = 10 }
    var wire = Frames.frame(2, final: false)
    for _ in 0..<8 { wire += Frames.frame(0, final: false) }
    expectEvents(["binary []", "ping "], from: wire + Frames.frame(0) + Frames.frame(9)) {
      transcript($0, limits: limits)
    }
    expectEvents(["error 1009"], from: wire + Frames.frame(0, final: false) + Frames.frame(0)) {
      transcript($0, limits: limits)
    }
  }

  /// Attack: a compression bomb. 16 MiB of zeros are 16 KiB on the wire.
  @Test func refusesAMessageThatInflatesAboveItsLimit() {
    let bomb = Frames.frame(2, Frames.deflated([UInt8](repeating: 0, count: 100_000)), reserved: 4)
    #expect(bomb.count < 300)
    let small = limits { $0.messageBytes = 99_999 }
    expectEvents(["error 1009"], from: bomb) { transcript($0, limits: small, compression: .init()) }
    let exact = limits { $0.messageBytes = 100_000 }
    #expect(transcript([bomb], limits: exact, compression: .init()).first?.hasPrefix("binary") == true)
    var connection = WebSocketConnection(role: .client, limits: small, compression: .init())
    connection.receive(bomb.span)
    #expect(throws: WebSocketProtocolError.self) { _ = try connection.nextEvent() }
    let allocated = connection.allocatedBytes
    #expect(allocated < 64 * 1024)
  }

  /// Attack: a bomb that stays below the limit of messages, but costs a thousand times its size.
  @Test func refusesAnUnrealisticCompressionRatio() {
    let bomb = Frames.frame(2, Frames.deflated([UInt8](repeating: 0, count: 100_000)), reserved: 4)
    let strict = limits {
      $0.inflationFloor = 1000
      $0.inflationRatio = 100
    }
    expectEvents(["error 1009"], from: bomb) { transcript($0, limits: strict, compression: .init()) }
    // A message up to the floor may have any ratio.
    let floor = limits {
      $0.inflationFloor = 100_000
      $0.inflationRatio = 1
    }
    #expect(transcript([bomb], limits: floor, compression: .init()).first?.hasPrefix("binary") == true)
  }

  @Test func allowsTheCompressionRatioOfAnOrdinaryMessage() {
    let message = Array(String(repeating: "{\"price\":1234,\"symbol\":\"ABC\"}", count: 40).utf8)
    let wire = Frames.frame(2, Frames.deflated(message), reserved: 4)
    let limits = limits {
      $0.inflationFloor = 512
      $0.inflationRatio = 200
    }
    expectEvents(["binary \(message)"], from: wire) { transcript($0, limits: limits, compression: .init()) }
  }

  /// The Autobahn suite's case 9.3.1, and the compressed form of ten million `a`: legitimate peers send both.
  @Test func allowsTheFramesOfOrdinaryPeers() throws {
    var wire = Frames.frame(2, final: false)
    for _ in 0..<65_535 { wire += Frames.frame(0, [UInt8](repeating: 7, count: 64), final: false) }
    var connection = WebSocketConnection(role: .client, compression: .init())
    connection.receive((wire + Frames.frame(0)).span)
    #expect(try connection.nextEvent() == .message(.binary))
    var count = connection.payload.count
    #expect(count == 65_535 * 64)
    let letters = [UInt8](repeating: 0x61, count: 10 << 20)
    connection.receive(Frames.frame(1, Frames.deflated(letters), reserved: 4).span)
    #expect(try connection.nextEvent() == .message(.text))
    count = connection.payload.count
    #expect(count == letters.count)
  }

  /// An idle connection has no memory on the heap, and little inline.
  @Test func hasNoMemoryWhileItIsIdle() throws {
    #expect(MemoryLayout<WebSocketConnection>.size <= 512)
    var connection = WebSocketConnection(role: .client, compression: .init())
    let before = connection.allocatedBytes
    #expect(before == 0)
    var wire: [UInt8] = []
    for size in [10, 1000, 100_000] { wire += Frames.frame(2, .init(repeating: 1, count: size)) }
    for byte in wire {
      connection.receive([byte].span)
      while try connection.nextEvent() != nil {}
    }
    connection.releaseStorageIfIdle()
    let after = connection.allocatedBytes
    #expect(after == 0)
  }

  /// A connection that has received half of a frame keeps this half.
  @Test func releasesNoMemoryThatIsStillNeeded() throws {
    let wire = Frames.text("Hel", final: false) + Frames.frame(9, [1]) + Frames.frame(0, Array("lo".utf8))
    var connection = WebSocketConnection(role: .client)
    var events: [WebSocketEvent] = []
    for byte in wire {
      connection.receive([byte].span)
      while let event = try connection.nextEvent() {
        events.append(event)
        connection.releaseStorageIfIdle()
        if event == .message(.text) {
          let text = connection.payload.text()
          #expect(text == "Hello")
        }
      }
      connection.releaseStorageIfIdle()
    }
    #expect(events == [.ping, .message(.text)])
  }
}
