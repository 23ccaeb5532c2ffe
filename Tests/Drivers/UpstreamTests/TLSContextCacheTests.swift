import ByteStreams
import Configuration
import Foundation
import Reactor
import TLSEngine
import Testing
import Threading
import WebSocketCodec

@testable import Upstream

/// Sharing of TLS contexts and files between sessions.
@Suite struct TLSContextCacheTests {
  private func settings(_ change: (inout UpstreamSettings) -> Void = { _ in }) throws -> UpstreamSettings {
    var settings = UpstreamSettings(urls: [try WebSocketURL("wss://127.0.0.1:1/")])
    settings.fileTimeout = .milliseconds(50)
    change(&settings)
    return settings
  }

  @Test func sessionsWithEqualTLSSettingsShareAContext() throws {
    var cache = TLSContextCache(fileTimeout: .seconds(5))
    let first = try SharedSettings(settings { $0.tls.verification = .offForTestsOnly }, with: &cache)
    let second = try SharedSettings(
      settings {
        $0.tls.verification = .offForTestsOnly
        $0.fileTimeout = .seconds(1)
      }, with: &cache)
    let other = try SharedSettings(
      settings {
        $0.tls.verification = .offForTestsOnly
        $0.tls.minimumVersion = .v1_3
      }, with: &cache)
    let plain = try SharedSettings(UpstreamSettings(urls: [WebSocketURL("ws://127.0.0.1:1/")]), with: &cache)
    #expect(first.tlsContext != nil && first.tlsContext === second.tlsContext)
    #expect(other.tlsContext != nil && other.tlsContext !== first.tlsContext)
    #expect(plain.tlsContext == nil)
  }

  @Test func eachFileIsReadOnce() throws {
    let path = "/tmp/ca-\(getpid())-\(UInt32.random(in: 0 ... .max)).fifo"
    try #require(mkfifo(path, 0o600) == 0)
    defer { unlink(path) }
    var cache = TLSContextCache(fileTimeout: .zero)
    let errors = try (0..<3).map { number in
      // The FIFO has no writer, so reading takes the whole timeout.
      let settings = try settings {
        $0.tls.trust.caFile = path
        $0.fileTimeout = .milliseconds(300)
        if number == 2 { $0.tls.minimumVersion = .v1_3 }
      }
      let start = ContinuousClock.now
      let error = #expect(throws: TLSSettingsError.self) { _ = try SharedSettings(settings, with: &cache) }
      return (error, ContinuousClock.now - start)
    }
    #expect(Set(errors.map { $0.0?.description ?? "" }).count == 1)
    #expect(errors[0].1 >= .milliseconds(300) && errors[1].1 + errors[2].1 < .milliseconds(300))
  }
}
