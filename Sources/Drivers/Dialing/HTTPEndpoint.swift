import ByteStreams
import HTTPCodec
import Host
import Profiles
import TLSEngine

/// The destination of an `HTTPClient`'s requests. The files of its TLS settings have been read.
package final class HTTPEndpoint: Sendable {
  package let url: HTTPURL
  /// The rules about the addresses to which the gateway may connect, applied to each address of the name; nil if it may
  /// connect to any address.
  let rules: ConnectionRules?
  /// The TLS context; nil for `http`.
  let tlsContext: RefreshableTLSContext?

  /// Maximum time to read the files of the TLS settings.
  package static var fileTimeout: TimeSpan { .seconds(5) }

  /// The endpoint of another gateway, without TLS.
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
