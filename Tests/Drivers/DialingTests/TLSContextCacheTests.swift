import ByteStreams
import Dialing
import Foundation
import TLSEngine
import Testing

/// TLS contexts and files that several sessions use together.
@Suite struct TLSContextCacheTests {
  private func settings(_ change: (inout TLSClientSettings) -> Void) -> TLSClientSettings {
    var settings = TLSClientSettings()
    change(&settings)
    return settings
  }

  @Test func sessionsWithEqualTLSSettingsUseOneContext() throws {
    var cache = TLSContextCache(fileTimeout: .seconds(5))
    let unverified = settings { $0.verification = .offForTestsOnly }
    let first = try cache.context(for: unverified, fileTimeout: .seconds(5))
    let second = try cache.context(for: unverified, fileTimeout: .seconds(1))
    let other = try cache.context(
      for: settings {
        $0.verification = .offForTestsOnly
        $0.minimumVersion = .v1_3
      }, fileTimeout: .seconds(5))
    #expect(first === second && other !== first)
  }

  @Test func eachFileIsReadOnce() throws {
    let path = "/tmp/ca-\(getpid())-\(UInt32.random(in: 0 ... .max)).pem"
    defer { unlink(path) }
    var cache = TLSContextCache(fileTimeout: .seconds(5))
    let errors = try (0..<3).map { number in
      let settings = settings {
        $0.trust.caFile = path
        if number == 2 { $0.minimumVersion = .v1_3 }
      }
      let error = #expect(throws: TLSSettingsError.self) {
        _ = try cache.context(for: settings, fileTimeout: .seconds(5))
      }
      // The file does not exist at first. If the cache read it again, the error would differ.
      try Data().write(to: URL(fileURLWithPath: path))
      return error
    }
    #expect(errors[0]?.description.isEmpty == false)
    #expect(Set(errors.map { $0?.description ?? "" }).count == 1)
  }
}
