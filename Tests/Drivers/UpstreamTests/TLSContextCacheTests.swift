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
    let path = "/tmp/ca-\(getpid())-\(UInt32.random(in: 0 ... .max)).pem"
    defer { unlink(path) }
    var cache = TLSContextCache(fileTimeout: .seconds(5))
    let errors = try (0..<3).map { number in
      let settings = try settings {
        $0.tls.trust.caFile = path
        if number == 2 { $0.tls.minimumVersion = .v1_3 }
      }
      let error = #expect(throws: TLSSettingsError.self) { _ = try SharedSettings(settings, with: &cache) }
      // There is no such file at first. If it were read again, the error would be another one.
      try Data().write(to: URL(fileURLWithPath: path))
      return error
    }
    #expect(errors[0]?.description.isEmpty == false)
    #expect(Set(errors.map { $0?.description ?? "" }).count == 1)
  }
}
