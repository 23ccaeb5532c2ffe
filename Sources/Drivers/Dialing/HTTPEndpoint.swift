import ByteStreams
import HTTPCodec
import Host
import Profiles
import TLSEngine

/// Where an `HTTPClient` sends its requests, with the files that its TLS settings name read.
package final class HTTPEndpoint: Sendable {
  package let url: HTTPURL
  /// Which addresses may be connected to, applied to each address after the look-up of the name; nil: any.
  let rules: ConnectionRules?
  /// nil for `http`.
  let tlsContext: RefreshableTLSContext?

  /// Maximum time to read the files of the TLS settings.
  package static var fileTimeout: TimeSpan { .seconds(5) }

  /// Another gateway, without TLS.
  package init?(gatewayAt address: SocketAddress) {
    guard address.ip != nil, let url = try? HTTPURL("http://\(address)") else { return nil }
    (self.url, rules, tlsContext) = (url, nil, nil)
  }

  /// Reads the files of `tls`, unless another user of `cache` has the same settings. Blocks.
  package init(
    _ url: HTTPURL, _ tls: TLSClientSettings, _ rules: ConnectionRules, with cache: inout TLSContextCache
  ) throws(TLSSettingsError) {
    self.url = url
    self.rules = rules
    tlsContext = url.isSecure ? try cache.context(for: tls, fileTimeout: Self.fileTimeout) : nil
  }
}
